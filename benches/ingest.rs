//! What it takes to have an object that has come at hand: from the bytes of its line to where readers find it, on one core. Decoded, against
//! `serde_json` alone on the same bytes; encoded, against decoded.

use std::hint::black_box;

use clustercache_informers::{Informers, Keep, Kind};
use figure::{Figures, Unit::Nanoseconds, median, per_call};
use k8s_openapi::api::core::v1::Pod;

mod figure;
mod pods;

const PODS: usize = 5_000;
const ROUNDS: usize = 7;

fn main() -> anyhow::Result<()> {
    let lines: Vec<_> = (0..PODS)
        .map(|number| pods::line(number, number + 1))
        .collect();
    let (mut alone, mut decoded, mut encoded) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        alone.push(per_call(PODS, || {
            for line in &lines {
                black_box(serde_json::from_slice::<Pod>(pods::json(line)).expect("a pod"));
            }
        }));
        decoded.push(ingested(Keep::Decoded, &lines)?);
        encoded.push(ingested(Keep::Encoded, &lines)?);
    }
    let (alone, decoded, encoded) = (
        median(&mut alone),
        median(&mut decoded),
        median(&mut encoded),
    );
    let mut figures = Figures::default();
    figures.against(
        "ingest_decoded",
        decoded,
        Nanoseconds,
        ("serde_json", alone),
    );
    figures.against(
        "ingest_encoded",
        encoded,
        Nanoseconds,
        ("ingest_decoded", decoded),
    );
    figures.print();
    Ok(())
}

fn ingested(keep: Keep, lines: &[Vec<u8>]) -> anyhow::Result<f64> {
    let pods = Kind::<Pod>::new()
        .index_field("node", "spec.nodeName")
        .keep(keep);
    let (stores, mut feed) = Informers::new().kind(pods).by_hand();
    feed.synced::<Pod>()?;
    let time = per_call(lines.len(), || {
        // As they come: some to a frame.
        for lines in lines.chunks(16) {
            feed.lines::<Pod>(lines.iter().map(Vec::as_slice))
                .expect("lines");
        }
    });
    anyhow::ensure!(
        stores.store::<Pod>()?.len() == lines.len(),
        "they are there"
    );
    Ok(time)
}
