//! Series of files, full queues and disks that fail.

use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use kvasir_balance::SelectionSpec;
use kvasir_balance::record::{Line, OutcomeRecord};

use super::files::LogFile;
use super::series::{FLUSH_AFTER, RETRY_AFTER, Series};
use super::*;

/// A directory of its own; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("kvasir-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn spec(&self, max_bytes: u64, files: usize) -> DecisionLogSpec {
        DecisionLogSpec { directory: self.0.clone(), max_bytes, files }
    }

    /// The lines of each file; all of them whole.
    fn files(&self) -> Vec<Vec<Line>> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
        paths.sort();
        let lines = |path: PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.ends_with('\n'), "a part of a line: {text}");
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        paths.into_iter().map(lines).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_file(&self.0);
    }
}

fn start() -> Start {
    Start::new("org/m".to_owned(), SelectionSpec::default(), 7)
}

fn outcome(of: u64) -> What {
    What::Outcome(OutcomeRecord { of, answered: true, at_us: of })
}

/// `start 3`, `missing 2`, or an outcome's number.
fn shown(lines: &[Line]) -> Vec<String> {
    let one = |line: &Line| match line {
        Line::Start(start) => format!("start {}", start.continues),
        Line::Outcome(outcome) => outcome.of.to_string(),
        Line::Missing { lines } => format!("missing {lines}"),
        other => panic!("{other:?}"),
    };
    lines.iter().map(one).collect()
}

#[test]
fn files_follow_each_other_and_the_oldest_go() {
    let scratch = Scratch::new();
    let log = DecisionLog::open(scratch.spec(800, 3)).unwrap();
    let mut pool = log.pool(start());
    (1..=100).for_each(|of| pool.push(outcome(of)));
    assert!(log.close());
    let files = scratch.files();
    assert_eq!(files.len(), 3);
    let mut expected = None;
    for lines in &files {
        let Line::Start(start) = &lines[0] else { panic!("{lines:?}") };
        assert!(start.continues > 0, "the first file is gone");
        assert_eq!(start.continues, *expected.get_or_insert(start.continues));
        let outcomes: Vec<u64> = lines[1..]
            .iter()
            .map(|line| if let Line::Outcome(outcome) = line { outcome.of } else { panic!() })
            .collect();
        assert_eq!(outcomes[0], start.continues + 1);
        expected = Some(start.continues + outcomes.len() as u64);
    }
    assert_eq!(expected, Some(100));
    assert_eq!((pool.account().lines(), pool.account().dropped()[0].1), (100, 0));
    // Nobody takes lines any more.
    pool.push(outcome(101));
    assert_eq!(pool.account().dropped()[0], ("queue_full", 1));
}

#[test]
fn a_file_that_cannot_be_removed_keeps_no_other_and_is_named() {
    let scratch = Scratch::new();
    // A directory is no file that could be removed, whoever tries.
    let stuck = scratch.0.join("org%2Fm.00000001.jsonl");
    std::fs::create_dir_all(&stuck).unwrap();
    let log = DecisionLog::open(scratch.spec(800, 3)).unwrap();
    let mut pool = log.pool(start());
    let account = Arc::clone(pool.account());
    (1..=100).for_each(|of| pool.push(outcome(of)));
    assert!(log.close());
    assert_eq!(account.words(), ("writing", "not_pruned"));
    // Beside the three: itself, and the lock.
    assert_eq!((account.lines(), std::fs::read_dir(&scratch.0).unwrap().count()), (100, 3 + 2));
    std::fs::remove_dir(&stuck).unwrap();
    drop(log);
    // It is tried again with the next file.
    let mut series = Series::new(Arc::clone(&account), &scratch.spec(800, 3), files::create);
    let entry = Entry { account: Arc::clone(&account), missing: 0, what: outcome(1) };
    series.entry(&entry, Instant::now());
    series.end(Instant::now());
    assert_eq!((account.words(), scratch.files().len()), (("writing", ""), 3));
}

#[test]
fn a_disk_that_does_not_answer_is_waited_for_once() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(&scratch.0).unwrap();
    let queue = Arc::new(Queue::new(Bounds::default()));
    let log =
        DecisionLog { queue, closed: AtomicBool::new(false), _lock: lock(&scratch.0).unwrap() };
    assert!(!log.close());
    let began = Instant::now();
    drop(log);
    assert!(began.elapsed() < LAST_LINES / 2);
}

#[test]
fn a_gateway_that_starts_again_goes_on_with_a_file_of_its_own() {
    let scratch = Scratch::new();
    for _ in 0..2 {
        let log = DecisionLog::open(scratch.spec(1 << 20, 3)).unwrap();
        log.pool(start()).push(outcome(1));
        log.pool(Start { model: "other".to_owned(), ..start() }).push(outcome(2));
    }
    let files: Vec<_> = scratch.files().iter().map(|lines| shown(lines)).collect();
    assert_eq!(files, [["start 0", "1"], ["start 0", "1"], ["start 0", "2"], ["start 0", "2"]]);
}

#[test]
fn what_finds_the_queue_full_is_counted_and_said_at_its_place() {
    let scratch = Scratch::new();
    let (spec, bounds) = (scratch.spec(1 << 20, 3), Bounds { entries: 2, bytes: 1 << 20 });
    let queue = Arc::new(Queue::new(bounds));
    let account = Arc::new(Account::new(start()));
    let mut pool = PoolLog { queue: Arc::clone(&queue), account: Arc::clone(&account), missing: 0 };
    (1..=5).for_each(|of| pool.push(outcome(of)));
    assert_eq!(account.dropped(), [("queue_full", 3), ("disk", 0)]);
    let writer = Writer::new(Arc::clone(&queue), spec);
    let thread = std::thread::spawn(move || writer.run());
    kvasir_testkit::eventually(Duration::from_secs(10), || account.lines() == 2);
    pool.push(outcome(6));
    kvasir_testkit::eventually(Duration::from_secs(10), || account.lines() == 3);
    queue.close();
    thread.join().unwrap();
    let files = scratch.files();
    assert_eq!(shown(&files[0]), ["start 0", "1", "2", "missing 3", "6"]);
    assert_eq!(account.lines(), 3);
}

#[test]
fn what_is_large_fills_the_queue_too() {
    let queue = Queue::new(Bounds { entries: 100, bytes: 2 * size_of::<Entry>() + 1 });
    let account = Arc::new(Account::new(start()));
    let entry = |of| Entry { account: Arc::clone(&account), missing: 0, what: outcome(of) };
    assert_eq!([1, 2, 3].map(|of| queue.push(entry(of))), [true, true, false]);
    drop(queue.take(None));
    assert!(queue.push(entry(4)));
}

thread_local! {
    static FULL: Cell<bool> = const { Cell::new(false) };
}

/// A file on a disk that may be full.
struct OnFullDisk(File);

impl Write for OnFullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !FULL.get() {
            return self.0.write(bytes);
        }
        // Some of it fits.
        self.0.write_all(&bytes[..bytes.len() / 2])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl LogFile for OnFullDisk {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        use std::io::Seek as _;
        self.0.set_len(bytes)?;
        self.0.seek(io::SeekFrom::End(0)).map(drop)
    }
}

fn on_full_disk(path: &Path) -> io::Result<Box<dyn LogFile>> {
    Ok(Box::new(OnFullDisk(File::create_new(path)?)))
}

/// A series and the time it is told.
struct Told {
    series: Series,
    account: Arc<Account>,
    now: Instant,
}

impl Told {
    fn new(scratch: &Scratch) -> Self {
        let account = Arc::new(Account::new(start()));
        let spec = scratch.spec(1 << 20, 5);
        let series = Series::new(Arc::clone(&account), &spec, on_full_disk);
        Self { series, account, now: Instant::now() }
    }

    fn push(&mut self, of: u64) {
        let account = Arc::clone(&self.account);
        self.series.entry(&Entry { account, missing: 0, what: outcome(of) }, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.series.tick(self.now);
    }

    fn state(&self) -> (&'static str, &'static str) {
        self.account.words()
    }
}

#[test]
fn a_full_disk_is_a_state_and_what_it_cost_is_said_when_it_is_over() {
    let scratch = Scratch::new();
    let mut told = Told::new(&scratch);
    told.push(1);
    told.pass(FLUSH_AFTER);
    assert_eq!((told.state(), told.account.lines()), (("writing", ""), 1));
    FULL.set(true);
    told.push(2);
    told.push(3);
    told.pass(FLUSH_AFTER);
    assert_eq!(told.state(), ("failing", "disk_full"));
    // Not tried at once.
    told.push(4);
    assert_eq!(told.account.dropped(), [("queue_full", 0), ("disk", 3)]);
    told.pass(RETRY_AFTER);
    assert_eq!(told.state(), ("failing", "disk_full"));
    assert_eq!(shown(&scratch.files().concat()), ["start 0", "1"]);
    FULL.set(false);
    // It comes back without anything to write.
    told.pass(RETRY_AFTER);
    assert_eq!(told.state(), ("writing", ""));
    told.push(5);
    told.series.end(told.now);
    let files: Vec<_> = scratch.files().iter().map(|lines| shown(lines)).collect();
    assert_eq!(files, [vec!["start 0", "1"], vec!["start 1", "missing 3", "5"]]);
    assert_eq!((told.account.lines(), told.account.dropped()[1].1), (2, 3));
}

#[test]
fn a_directory_that_is_gone_is_a_state_too() {
    let scratch = Scratch::new();
    // A file is in its place.
    std::fs::write(&scratch.0, "").unwrap();
    let mut told = Told::new(&scratch);
    told.push(1);
    assert_eq!(told.state(), ("failing", "no_directory"));
    std::fs::remove_file(&scratch.0).unwrap();
    told.pass(RETRY_AFTER);
    told.push(2);
    told.pass(FLUSH_AFTER);
    assert_eq!(told.state(), ("writing", ""));
    assert_eq!(shown(&scratch.files()[0]), ["start 0", "missing 1", "2"]);
}

#[test]
fn a_directory_that_cannot_be_used_is_said_at_once() {
    let scratch = Scratch::new();
    let log = DecisionLog::open(scratch.spec(1 << 20, 3)).unwrap();
    let error = DecisionLog::open(scratch.spec(1 << 20, 3)).unwrap_err().to_string();
    assert!(error.ends_with("another gateway writes its decision log there"), "{error}");
    drop(log);
    DecisionLog::open(scratch.spec(1 << 20, 3)).unwrap();
    let file = scratch.0.join("file");
    std::fs::write(&file, "").unwrap();
    let spec = DecisionLogSpec { directory: file.join("log"), max_bytes: 1 << 20, files: 3 };
    let error = DecisionLog::open(spec).unwrap_err().to_string();
    assert!(error.contains("file/log: Not a directory"), "{error}");
}
