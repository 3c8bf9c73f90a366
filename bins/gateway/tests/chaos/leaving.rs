//! Clients that leave: before, during and after their request, and anywhere in their answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvasir_testkit::client::RawClient;
use tokio::time::{sleep, timeout};

use crate::answers::Asked;
use crate::load::asked;
use crate::random::Random;

const CLIENTS: u64 = 32;

/// Leaves so many times.
pub(crate) async fn leave(addr: SocketAddr, times: u64) {
    let left = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (left, mut random) = (Arc::clone(&left), Random::new(client));
            tokio::spawn(async move {
                while left.fetch_add(1, Ordering::Relaxed) < times {
                    once(addr, &mut random).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("a client came to its end");
    }
}

async fn once(addr: SocketAddr, random: &mut Random) {
    let mut connection = RawClient::connect(addr).await.expect("it accepts");
    let mut asked = asked("leaving-", random);
    asked.tokens = 30;
    // The gateway may close a connection whose request it refuses; that is no fault here.
    let _ = stage(&asked, &mut connection, random).await;
    if random.below(2) == 0 {
        let _ = connection.abort();
    }
}

/// Comes as far as one of the stages.
async fn stage(asked: &Asked, client: &mut RawClient, random: &mut Random) -> std::io::Result<()> {
    let body = asked.body();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    match random.below(7) {
        0 => Ok(()),
        1 => client.write(head.as_bytes().split_at(cut(head.len(), random)).0).await,
        2 => {
            client.write(head.as_bytes()).await?;
            client.write(body.split_at(cut(body.len(), random)).0).await
        }
        3 => asked.send(client).await,
        4 => {
            asked.send(client).await?;
            sleep(Duration::from_millis(random.below(8))).await;
            Ok(())
        }
        5 => {
            asked.send(client).await?;
            client.head().await?;
            if asked.stream {
                for _ in 0..random.below(20) {
                    client.event().await?;
                }
            }
            Ok(())
        }
        _ => {
            asked.send(client).await?;
            // Half of what comes, at most.
            let _ = timeout(Duration::from_millis(random.below(30)), client.response()).await;
            Ok(())
        }
    }
}

fn cut(length: usize, random: &mut Random) -> usize {
    usize::try_from(random.below(length as u64)).unwrap_or_default()
}
