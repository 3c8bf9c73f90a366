//! When a decode endpoint is taken to generate.

use super::*;

#[test]
fn a_decode_endpoint_generates_a_whole_answer_once_the_prompt_is_there() {
    let scene = scene(&[Prefill, Decode]);
    let (pool, prompt, d) = (splitting(&scene), prompt(), scene.endpoint(1));
    let leg = || decode_leg(&pool, &prompt);
    let (mut streamed, mut fetches, mut told) = (leg(), leg(), leg());
    assert_eq!((d.in_flight(), d.decoding()), (3, 0));
    // Both legs were sent at once, and the prefill leg is over.
    told.generates();
    assert_eq!(d.decoding(), 1);
    streamed.decode_begins(false);
    fetches.decode_begins(true);
    let deadline = Instant::now() + Duration::from_secs(20);
    while d.decoding() < 2 {
        assert!(Instant::now() < deadline, "4000 tokens take 25 ms");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Of a stream the first data shows it, and of the others it is counted once.
    assert_eq!(d.decoding(), 2);
    for leg in [&mut streamed, &mut fetches, &mut told] {
        leg.first_data(true);
    }
    assert_eq!((d.in_flight(), d.decoding()), (3, 3));
    drop((streamed, fetches, told));
    assert_eq!((d.in_flight(), d.decoding()), (0, 0));
}
