//! What a scrape gathers, in the types of the crate `prometheus`. They differ by its feature `protobuf`, which any other crate of a program
//! may switch on: only what both have is used.

use std::time::{SystemTime, UNIX_EPOCH};

use clustercache::Durations;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Sample, MetricFamily, MetricType,
};

use crate::names::{Kind, Metric};

/// What a scrape has gathered so far.
#[derive(Default)]
pub(crate) struct Page(Vec<MetricFamily>);

impl Page {
    /// A gauge or a counter without labels.
    pub(crate) fn one(&mut self, metric: &Metric, value: f64) {
        self.many(metric, [([""; 0], value)]);
    }

    /// A gauge or a counter, with the values of its labels in their order.
    pub(crate) fn many<L: Into<String>, const N: usize>(
        &mut self,
        metric: &Metric,
        values: impl IntoIterator<Item = ([L; N], f64)>,
    ) {
        let samples = values.into_iter().map(|(labels, value)| {
            let mut sample = labelled(metric, labels);
            if metric.kind == Kind::Counter {
                let mut counter = Counter::default();
                counter.set_value(value);
                sample.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                sample.set_gauge(gauge);
            }
            sample
        });
        self.add(metric, samples.collect());
    }

    /// A histogram.
    pub(crate) fn durations<'a, L: Into<String>, const N: usize>(
        &mut self,
        metric: &Metric,
        values: impl IntoIterator<Item = ([L; N], &'a Durations)>,
    ) {
        let samples = values.into_iter().map(|(labels, durations)| {
            let mut sample = labelled(metric, labels);
            sample.set_histogram(histogram(durations));
            sample
        });
        self.add(metric, samples.collect());
    }

    pub(crate) fn families(self) -> Vec<MetricFamily> {
        self.0
    }

    fn add(&mut self, metric: &Metric, samples: Vec<Sample>) {
        let mut family = MetricFamily::default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(match metric.kind {
            Kind::Gauge => MetricType::GAUGE,
            Kind::Counter => MetricType::COUNTER,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        family.set_metric(samples);
        self.0.push(family);
    }
}

fn labelled<L: Into<String>, const N: usize>(metric: &Metric, values: [L; N]) -> Sample {
    debug_assert_eq!(metric.labels.len(), N, "the labels of {}", metric.name);
    let pairs = metric.labels.iter().zip(values).map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.into());
        pair
    });
    Sample::from_label(pairs.collect())
}

fn histogram(durations: &Durations) -> Histogram {
    let mut so_far = 0;
    let buckets = durations.buckets().map(|(most, count)| {
        so_far = count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(most.as_secs_f64());
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    // It counts on while it is read: all of them are never fewer than those in the buckets.
    histogram.set_sample_count(durations.count().max(so_far));
    histogram.set_sample_sum(durations.sum().as_secs_f64());
    histogram
}

/// A count as a value. Above 2^53 it is not exact, as everywhere in Prometheus.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn count(things: u64) -> f64 {
    things as f64
}

/// The same of what is in memory.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn number(things: usize) -> f64 {
    things as f64
}

/// Seconds since the epoch.
pub(crate) fn timestamp(at: SystemTime) -> f64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}
