use std::collections::HashMap;

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Recorded, Reply};
use serde_json::Value;

use super::*;
use crate::workload::Shape;

const SHAPE: Shape = Shape {
    tenants: 2,
    users_per_tenant: 2,
    system_words: 30,
    turns: (2, 3),
    sentences: (1, 1),
    answer_tokens: 2,
    think_ms: (5, 10),
    arrival_ms: 20,
};

async fn engine() -> FakeEngine {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let tell = |request: &Recorded| {
        let count = request.json()["messages"].as_array().map_or(0, Vec::len);
        let text = format!(r#"{{"choices":[{{"delta":{{"content":"answer {count}"}}}}]}}"#);
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":10}}"#.to_owned();
        Some(Reply::sse([text, usage]))
    };
    engine.set_handler(tell);
    engine
}

async fn run(engine: &FakeEngine, time: Duration) -> (Played, Arc<Progress>) {
    let target = Target { url: engine.url(), model: "tiny".to_owned() };
    let workload = Arc::new(Workload::new(SHAPE, 9));
    let progress = Arc::new(Progress::default());
    (play(&[target], &workload, time, &progress).await, progress)
}

fn messages(request: &Recorded) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let body = request.json();
    let all = body["messages"].as_array().cloned().unwrap_or_default();
    all.iter().map(|message| (word(&message["role"]), word(&message["content"]))).collect()
}

#[tokio::test]
async fn conversations_grow_by_the_answers_received() {
    let engine = engine().await;
    let (played, progress) = run(&engine, Duration::from_millis(400)).await;
    let requests = engine.requests();
    assert!(requests.len() > 20, "{}", requests.len());
    assert_eq!((played.failed, played.first_failure), (0, None));
    assert_eq!(played.answers.len(), requests.len());
    assert_eq!((progress.answered(), progress.failed()), (requests.len() as u64, 0));

    let systems = Workload::new(SHAPE, 9).systems().to_vec();
    // Questions are unique: the first one names the conversation.
    let mut conversations: HashMap<String, Vec<Vec<(String, String)>>> = HashMap::new();
    for request in &requests {
        let messages = messages(request);
        assert!(systems.contains(&messages[0].1));
        conversations.entry(messages[1].1.clone()).or_default().push(messages);
    }
    for turns in conversations.values() {
        assert!(turns.len() <= 3);
        for (turn, messages) in turns.iter().enumerate() {
            let roles: Vec<&str> = messages.iter().map(|(role, _)| role.as_str()).collect();
            let mut expected = vec!["system", "user"];
            (0..turn).for_each(|_| expected.extend(["assistant", "user"]));
            assert_eq!(roles, expected);
            if let Some(before) = turn.checked_sub(1).map(|before| &turns[before]) {
                assert_eq!(&messages[..before.len()], before.as_slice());
                assert_eq!(messages[before.len()].1, format!("answer {}", before.len()));
            }
        }
    }
}

#[tokio::test]
async fn failures_are_counted_and_conversations_start_anew() {
    let engine = engine().await;
    engine.push([Reply::status(StatusCode::BAD_GATEWAY), Reply::status(StatusCode::NOT_FOUND)]);
    let (played, progress) = run(&engine, Duration::from_millis(200)).await;
    let first = ChatError::Status { status: 502, body: String::new() };
    assert_eq!((played.failed, played.first_failure), (2, Some(first)));
    assert_eq!(progress.failed(), 2);
    assert_eq!(played.answers.len() + 2, engine.requests().len());
    // Nobody goes on from a question that was not answered.
    for request in engine.requests() {
        let messages = messages(&request);
        let users = messages.iter().filter(|(role, _)| role == "user").count();
        let answers = messages.iter().filter(|(role, _)| role == "assistant").count();
        assert_eq!(users, answers + 1);
    }
}

#[tokio::test]
async fn each_tenant_asks_at_one_of_several_addresses() {
    let engines = [engine().await, engine().await];
    let target = |engine: &FakeEngine| Target { url: engine.url(), model: "tiny".to_owned() };
    let targets: Vec<Target> = engines.iter().map(target).collect();
    let workload = Arc::new(Workload::new(SHAPE, 9));
    let time = Duration::from_millis(300);
    let played = play(&targets, &workload, time, &Arc::new(Progress::default())).await;
    assert_eq!(played.failed, 0);
    for (engine, system) in engines.iter().zip(workload.systems()) {
        let requests = engine.requests();
        assert!(!requests.is_empty());
        for request in &requests {
            assert_eq!(messages(request)[0].1, *system);
        }
    }
}
