//! A gateway that is killed while plugins write.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use super::support::{add, get, of_tenant, setup, storing};

const KILLS: i64 = 4;
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_add_is_lost_when_the_gateway_is_killed() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let acknowledged = Arc::new(AtomicI64::new(0));
    let mut unanswered = 0;
    for round in 1..=KILLS {
        let gateway = setup(&folder, &[&plugin]).start().await;
        let client = of_tenant(&gateway, &plugin, "acme").await;
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (mut client, acknowledged) = (client.clone(), Arc::clone(&acknowledged));
                tokio::spawn(async move {
                    while add(&mut client, "counter", None).await.is_ok() {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while acknowledged.load(Ordering::Relaxed) < round * 200 {
            tokio::task::yield_now().await;
        }
        gateway.kill().await;
        for writer in writers {
            writer.await.unwrap();
            // Each writer's last add may or may not have happened.
            unanswered += 1;
        }
        let gateway = setup(&folder, &[&plugin]).start().await;
        let mut client = of_tenant(&gateway, &plugin, "acme").await;
        let counter: i64 = get(&mut client, "counter").await.unwrap().unwrap().parse().unwrap();
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        assert!((acknowledged..=acknowledged + unanswered).contains(&counter), "{acknowledged} {counter}");
    }
}
