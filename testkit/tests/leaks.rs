//! Nothing is left of a fleet. Alone in its process, because it counts the descriptors of the process.

use clustercache_testkit::fleet::{FakeCluster, Fleet};
use tokio::{net::TcpStream, runtime::Handle};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_fleet_that_ended_leaves_no_task_and_no_descriptor() {
    // What the runtime opens once is open after this.
    FakeCluster::start("first").unwrap().shutdown().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (tasks_before, descriptors_before) = (tasks(), descriptors());
    for round in 0..10 {
        let fleet = Fleet::start(20).await.unwrap();
        let mut clients = Vec::new();
        for (number, cluster) in fleet.clusters().iter().enumerate() {
            match number % 5 {
                0 => cluster.black_hole(),
                1 => cluster.pause(),
                2 => cluster.silence_new_connections(),
                _ => {}
            }
            clients.push(TcpStream::connect(cluster.addr()).await.unwrap());
        }
        fleet[0].refuse();
        fleet[5].unplug();
        fleet[3]
            .when(|counters| counters.connections_open == 1)
            .await;
        assert!(fleet[3].tasks() >= 1);
        let inside = fleet.clusters().to_vec();
        if round % 2 == 0 {
            fleet.shutdown().await;
        } else {
            // Dropped, as a test does that forgets to shut down; the handles that are left see the end.
            drop(fleet);
            for cluster in &inside {
                cluster.shutdown().await;
            }
        }
        assert!(inside.iter().all(|cluster| cluster.tasks() == 0));
        drop((inside, clients));
        assert_eq!((tasks(), descriptors()), (tasks_before, descriptors_before));
    }
}
