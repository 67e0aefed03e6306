//! What an object costs in a store, by the way in which it is kept, against kube-rs' reflector store; and how fast a store is read, against a
//! plain map, at rest and while it changes.

use std::{
    alloc::System,
    collections::HashMap,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clustercache_informers::{ClusterInformers, Feed, Informers, Keep, Kind, Store};
use figure::{Figures, Unit::Bytes, Unit::Nanoseconds, count, median, per_call, percentile};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    core::PartialObjectMeta,
    runtime::{reflector::store::Writer, watcher::Event},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

mod figure;
mod pods;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// For memory.
const PODS: usize = 2_000;

/// For reads.
const MANY: usize = 100_000;
const READS: usize = 100_000;
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    let mut figures = Figures::default();
    memory(&mut figures)?;
    reads(&mut figures)?;
    figures.print();
    Ok(())
}

fn live() -> usize {
    let heap = HEAP.stats();
    heap.bytes_allocated - heap.bytes_deallocated
}

/// What each pod adds to the heap, and what holds it.
fn added<T>(make: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let before = live();
    let holder = make()?;
    Ok((count(live() - before) / count(PODS), holder))
}

fn fill<T: 'static>(
    informers: &Informers,
    lines: &[Vec<u8>],
) -> anyhow::Result<(ClusterInformers, Feed)> {
    let (stores, mut feed) = informers.by_hand();
    feed.synced::<T>()?;
    // As they come: some to a frame.
    for lines in lines.chunks(16) {
        feed.lines::<T>(lines.iter().map(Vec::as_slice))?;
    }
    Ok((stores, feed))
}

/// As in most controllers.
fn pods() -> Kind<Pod> {
    Kind::new().index_field("node", "spec.nodeName")
}

#[expect(dead_code, reason = "it is held, and measured")]
struct Small {
    node: Option<String>,
    ready: bool,
}

impl Small {
    fn of(pod: Pod) -> Self {
        Self {
            node: pod.spec.and_then(|spec| spec.node_name),
            ready: pod.status.is_some(),
        }
    }
}

fn memory(figures: &mut Figures) -> anyhow::Result<()> {
    let lines: Vec<_> = (0..PODS)
        .map(|number| pods::line(number, number + 1))
        .collect();
    let stripped = |line: &Vec<u8>| {
        let mut pod: serde_json::Value = serde_json::from_slice(pods::json(line)).expect("a pod");
        pod["metadata"]
            .as_object_mut()
            .expect("metadata")
            .remove("managedFields");
        pod.to_string().len()
    };
    let json = count(lines.iter().map(stripped).sum()) / count(PODS);
    let own = {
        let small =
            |number| Small::of(serde_json::from_value(pods::pod(number, 1)).expect("a pod"));
        let (own, _) = added(|| Ok((0..PODS).map(small).collect::<Vec<_>>()))?;
        own
    };

    let metadata = Informers::new().kind(Kind::<PartialObjectMeta<Pod>>::new().keep(Keep::Decoded));
    let (metadata, _) = added(|| fill::<PartialObjectMeta<Pod>>(&metadata, &lines))?;
    figures.add("pod_metadata", metadata, Bytes);
    let encoded = Informers::new().kind(pods());
    let (encoded, _) = added(|| fill::<Pod>(&encoded, &lines))?;
    figures.against("pod_encoded", encoded, Bytes, ("json", json));
    let projected = Informers::new().kind(Kind::<Pod>::new().project(Small::of));
    let (projected, _) = added(|| fill::<Small>(&projected, &lines))?;
    figures.against("pod_projected", projected, Bytes, ("own_type", own));
    let decoded = Informers::new().kind(pods().keep(Keep::Decoded));
    let (decoded, _) = added(|| fill::<Pod>(&decoded, &lines))?;
    let (reflector, _) = added(|| {
        let mut writer = Writer::<Pod>::default();
        for line in &lines {
            let mut pod: Pod = serde_json::from_slice(pods::json(line))?;
            pod.metadata.managed_fields = None;
            writer.apply_watcher_event(&Event::Apply(pod));
        }
        Ok(writer)
    })?;
    figures.against("pod_decoded", decoded, Bytes, ("kube_store", reflector));
    Ok(())
}

fn reads(figures: &mut Figures) -> anyhow::Result<()> {
    // The content is no matter here, and would take gigabytes.
    let slim = |number: usize| {
        let (namespace, name) = pods::name(number);
        let node = pods::node(number);
        format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u{number}","resourceVersion":"{}"}},"spec":{{"containers":[],"nodeName":"{node}"}}}}}}"#,
            number + 1
        )
    };
    let (stores, mut feed) = Informers::new().kind(pods().keep(Keep::Decoded)).by_hand();
    feed.synced::<Pod>()?;
    let mut plain = HashMap::new();
    let mut by_node = HashMap::<_, Vec<_>>::new();
    for number in 0..MANY {
        let line = slim(number);
        feed.line::<Pod>(line.as_bytes())?;
        let pod = Arc::new(serde_json::from_slice::<Pod>(pods::json(line.as_bytes()))?);
        by_node
            .entry(pods::node(number))
            .or_default()
            .push(Arc::clone(&pod));
        plain.insert(pods::name(number), pod);
    }
    let store = stores.store::<Pod>()?;
    let mut rng = fastrand::Rng::with_seed(7);
    let wanted: Vec<_> = (0..READS).map(|_| pods::name(rng.usize(..MANY))).collect();
    let nodes: Vec<_> = (0..READS / 100)
        .map(|_| pods::node(rng.usize(..MANY)))
        .collect();
    let (mut get, mut plain_get, mut index, mut plain_index) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        get.push(per_call(READS, || {
            for (namespace, name) in &wanted {
                black_box(store.get(&**namespace, name).expect("it fits"));
            }
        }));
        plain_get.push(per_call(READS, || {
            for name in &wanted {
                black_box(plain.get(name).cloned());
            }
        }));
        index.push(per_call(nodes.len(), || {
            for node in &nodes {
                black_box(store.by_index("node", node).expect("an index"));
            }
        }));
        plain_index.push(per_call(nodes.len(), || {
            for node in &nodes {
                black_box(by_node.get(node).cloned());
            }
        }));
    }
    figures.against(
        "store_get",
        median(&mut get),
        Nanoseconds,
        ("hash_map", median(&mut plain_get)),
    );
    figures.against(
        "store_by_index",
        median(&mut index),
        Nanoseconds,
        ("hash_map", median(&mut plain_index)),
    );

    let idle = batches(&stores, &wanted)?;
    let stop = Arc::new(AtomicBool::new(false));
    let changing = {
        let stop = Arc::clone(&stop);
        // What it writes is made before: only the store's own work is beside the reads.
        let lines: Vec<_> = (0..MANY)
            .map(|number| {
                slim(number).replace(
                    &format!("\"{}\"", number + 1),
                    &format!("\"{}\"", MANY + number),
                )
            })
            .collect();
        std::thread::spawn(move || {
            let begun = tokio::time::Instant::now();
            for (number, line) in lines.iter().cycle().enumerate() {
                if stop.load(Relaxed) {
                    break;
                }
                feed.line::<Pod>(line.as_bytes()).expect("a line");
                // 10,000 a second.
                let due =
                    begun + Duration::from_micros(100) * u32::try_from(number).unwrap_or(u32::MAX);
                let early = due.saturating_duration_since(tokio::time::Instant::now());
                if early > Duration::from_millis(1) {
                    std::thread::park_timeout(early);
                }
            }
        })
    };
    let busy = batches(&stores, &wanted)?;
    stop.store(true, Relaxed);
    changing.join().expect("it ends");
    figures.against("store_get_busy_p99", busy, Nanoseconds, ("idle", idle));

    encoded_reads(figures)
}

/// The 99th percentile of 64 reads each, each batch from the store as it is then.
fn batches(stores: &ClusterInformers, wanted: &[(String, String)]) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for batch in wanted.chunks(64).cycle().take(10_000) {
        let store: Store<Pod> = stores.store()?;
        times.push(per_call(64, || {
            for (namespace, name) in batch {
                black_box(store.get(&**namespace, name).expect("it fits"));
            }
        }));
    }
    Ok(percentile(&mut times, 99))
}

fn encoded_reads(figures: &mut Figures) -> anyhow::Result<()> {
    let lines: Vec<_> = (0..PODS)
        .map(|number| pods::line(number, number + 1))
        .collect();
    let (stores, _feed) = fill::<Pod>(&Informers::new().kind(pods()), &lines)?;
    let store = stores.store::<Pod>()?;
    let texts = (0..PODS).map(|number| {
        let mut pod = pods::pod(number, number + 1);
        pod["metadata"]
            .as_object_mut()
            .expect("metadata")
            .remove("managedFields");
        pod.to_string()
    });
    let texts: Vec<_> = texts.collect();
    let names: Vec<_> = (0..PODS).map(pods::name).collect();
    let (mut ours, mut alone) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        ours.push(per_call(PODS, || {
            for (namespace, name) in &names {
                black_box(store.get(&**namespace, name).expect("it fits"));
            }
        }));
        alone.push(per_call(PODS, || {
            for text in &texts {
                black_box(Arc::new(serde_json::from_str::<Pod>(text).expect("a pod")));
            }
        }));
    }
    figures.against(
        "read_encoded",
        median(&mut ours),
        Nanoseconds,
        ("serde_json", median(&mut alone)),
    );
    Ok(())
}
