//! Fleets of threads: ranks that measure, hang, fall silent, differ, or never speak, and what rank 0 makes of them. Records
//! are made up; what is looked at is that they arrive, all of those and only those that can.

use crate::common::schema::Validator;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use membound::fleet::follow::{Left, follow};
use membound::fleet::lead::{Led, Task, lead, part};
use membound::fleet::summary::{FILE, Summary, schema};
use membound::fleet::word::{Hello, NodeOutcome, Plan, State};
use membound::fleet::world::{Unreachable, World};
use membound::fleet::{Measuring, Patience};
use tempfile::TempDir;

const END: &str = "{\"type\":\"end\",\"wall_s\":1.0,\"interrupted\":false,\"planned\":2,\"after\":{}}\n";
/// Long enough that a loaded machine loses nobody by chance.
const PATIENT: Duration = Duration::from_secs(60);
const IMPATIENT: Duration = Duration::from_secs(3);

/// A rank that is a thread; messages are channels.
struct Threads {
    rank: usize,
    inbox: Receiver<(usize, Vec<u8>)>,
    ranks: Vec<Sender<(usize, Vec<u8>)>>,
    /// Bytes on their way to rank 0, and the most there have been.
    on_the_way: Arc<[AtomicUsize; 2]>,
    /// From when on it stands still, until the flag is up.
    stops: Option<(Instant, Arc<AtomicBool>)>,
}

impl World for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), Unreachable> {
        if to == 0 {
            let bytes = self.on_the_way[0].fetch_add(message.len(), Ordering::SeqCst) + message.len();
            self.on_the_way[1].fetch_max(bytes, Ordering::SeqCst);
        }
        self.ranks[to].send((self.rank, message)).map_err(|_| Unreachable("its thread is over".into()))
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, Unreachable> {
        if let Some((_, over)) = self.stops.as_ref().filter(|(since, _)| Instant::now() >= *since) {
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let message = self.inbox.try_recv().ok();
        if let Some((_, message)) = message.as_ref().filter(|_| self.rank == 0) {
            self.on_the_way[0].fetch_sub(message.len(), Ordering::SeqCst);
        }
        Ok(message)
    }

    fn has_left(&mut self, _: usize) -> bool {
        true
    }
}

/// What a node's measuring is made to look like.
#[derive(Clone)]
struct Script {
    /// Its record, of which a half is there from the start.
    record: String,
    lasts: Duration,
    end: State,
}

struct Played {
    script: Script,
    since: Instant,
    is_stopped: bool,
}

impl Measuring for Played {
    fn state(&mut self) -> State {
        match self.since.elapsed() >= self.script.lasts {
            _ if self.is_stopped => State::Ended { outcome: NodeOutcome::Interrupted, reason: None },
            true => self.script.end.clone(),
            false => State::Running,
        }
    }

    fn read(&mut self, at: u64, most: usize) -> std::io::Result<Vec<u8>> {
        let end = self.bytes() as usize;
        let bytes = &self.script.record.as_bytes()[..end];
        let rest = &bytes[(at as usize).min(bytes.len())..];
        Ok(rest[..rest.len().min(most)].to_vec())
    }

    fn bytes(&mut self) -> u64 {
        let is_running = self.state() == State::Running;
        let record = &self.script.record;
        let half = || record[..record.len() / 2].rfind('\n').map_or(0, |end| end + 1);
        (if is_running { half() } else { record.len() }) as u64
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }
}

/// How a rank behaves.
#[derive(Clone)]
enum Fate {
    Measures(Script),
    /// It can't begin.
    Unable(&'static str),
    /// Like the first, but it stands still after so long.
    Stops(Script, Duration),
    /// It never says a word.
    Mute,
    /// It says what nobody understands, and then measures.
    Babbles(Script),
}

fn measured() -> State {
    State::Ended { outcome: NodeOutcome::Measured, reason: None }
}

/// A record with so many visits, none of which another node has.
fn record(node: &str, visits: usize) -> String {
    let visits: String = (0..visits).map(|n| format!("visit {n} of {node}: {}\n", "x".repeat(n % 700))).collect();
    format!("header of {node}\n{visits}{END}")
}

fn script(node: &str, visits: usize) -> Script {
    Script { record: record(node, visits), lasts: Duration::from_millis(150), end: measured() }
}

fn hello(host: &str, boot: &str) -> Hello {
    let mut hello = Hello::here("membound 0.1.0", host.into(), Vec::new());
    (hello.boot_id, hello.slurm_node) = (boot.into(), None);
    hello
}

/// One rank a node, n0 to ..., that measure without faults.
fn healthy(nodes: usize, visits: usize) -> Vec<(Hello, Fate)> {
    let node = |n: usize| (hello(&format!("n{n}"), "b"), Fate::Measures(script(&format!("n{n}"), visits)));
    (0..nodes).map(node).collect()
}

struct Ran {
    led: std::io::Result<Led>,
    left: Vec<Left>,
    folder: TempDir,
    peak: usize,
    started: usize,
}

impl Ran {
    fn summary(&self) -> &Summary {
        &self.led.as_ref().unwrap().summary
    }

    fn outcomes(&self) -> Vec<NodeOutcome> {
        self.summary().nodes.iter().map(|node| node.outcome).collect()
    }

    fn reason(&self, node: usize) -> &str {
        self.summary().nodes[node].reason.as_deref().unwrap_or_default()
    }

    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(name)).ok()
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Runs a fleet, the first of which leads; `prepared` may spoil the folder before.
fn run(ranks: Vec<(Hello, Fate)>, silence: Duration, prepared: impl Fn(&Path)) -> Ran {
    run_until(ranks, silence, prepared, None)
}

fn run_until(
    ranks: Vec<(Hello, Fate)>,
    silence: Duration,
    prepared: impl Fn(&Path),
    interrupted_after: Option<Duration>,
) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let patience = Patience { node: PATIENT, silence, look: Duration::from_millis(5), pace: Duration::from_millis(20) };
    let (senders, inboxes): (Vec<_>, Vec<_>) = ranks.iter().map(|_| channel()).unzip();
    let on_the_way: Arc<[AtomicUsize; 2]> = Default::default();
    let (over, started) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let since = Instant::now();
    let interrupted = || interrupted_after.is_some_and(|after| since.elapsed() > after);
    let mut worlds: Vec<Threads> = inboxes
        .into_iter()
        .enumerate()
        .map(|(rank, inbox)| Threads {
            rank,
            inbox,
            ranks: senders.clone(),
            on_the_way: on_the_way.clone(),
            stops: None,
        })
        .collect();
    drop(senders);
    let (led, left) = std::thread::scope(|scope| {
        let mut first = worlds.remove(0);
        let mut followers = Vec::new();
        for (mut world, (hello, fate)) in worlds.into_iter().zip(ranks.iter().skip(1).cloned()) {
            let (started, over) = (&started, over.clone());
            followers.push(scope.spawn(move || {
                match &fate {
                    Fate::Mute => world.stops = Some((Instant::now(), over.clone())),
                    Fate::Stops(_, after) => world.stops = Some((Instant::now() + *after, over.clone())),
                    Fate::Babbles(_) => world.send(0, vec![0xff, b'\n', 0]).unwrap(),
                    _ => {}
                }
                if matches!(fate, Fate::Mute) {
                    // As if its hello were still to come.
                    while !over.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                let mut start = |_: &Plan| {
                    started.fetch_add(1, Ordering::SeqCst);
                    play(&fate)
                };
                follow(&mut world, hello, &mut start, patience.look, silence, &interrupted)
            }));
        }
        let (own, fate) = ranks[0].clone();
        let task = Task {
            folder: folder.path(),
            hello: own,
            patience,
            command: vec!["membound".into(), "fleet".into(), "run".into()],
            mpi: "threads".into(),
        };
        let mut start = |_: &Plan| {
            started.fetch_add(1, Ordering::SeqCst);
            play(&fate)
        };
        let led = lead(&mut first, task, &mut start, &interrupted, &mut |_| {});
        let gone = led.as_ref().map_or_else(|_| HashSet::new(), |led| led.gone.clone());
        let code = i32::from(led.as_ref().map_or(true, |led| led.summary.failed()));
        let mut left = vec![part(&mut first, &gone, code, silence, interrupted())];
        // Those that stood still wake up.
        over.store(true, Ordering::SeqCst);
        drop(first);
        left.extend(followers.into_iter().map(|follower| follower.join().unwrap()));
        (led, left)
    });
    let peak = on_the_way[1].load(Ordering::SeqCst);
    Ran { led, left, folder, peak, started: started.load(Ordering::SeqCst) }
}

fn play(fate: &Fate) -> Result<Box<dyn Measuring>, String> {
    match fate {
        Fate::Measures(script) | Fate::Stops(script, _) | Fate::Babbles(script) => {
            Ok(Box::new(Played { script: script.clone(), since: Instant::now(), is_stopped: false }))
        }
        Fate::Unable(why) => Err(why.to_string()),
        Fate::Mute => Err("nobody asked".into()),
    }
}

#[test]
fn records_of_64_nodes_arrive_whole_in_bounded_memory() {
    // 700 KB a node: 45 MB in all.
    let ran = run(healthy(64, 2000), PATIENT, |_| {});
    assert_eq!(ran.outcomes(), [NodeOutcome::Measured; 64]);
    for n in 0..64 {
        let (name, node) = (format!("n{n}"), &ran.summary().nodes[n]);
        assert_eq!((node.name.as_str(), node.rank, node.visits), (name.as_str(), n, 2000));
        assert_eq!(ran.file(&format!("{name}.jsonl")), Some(record(&name, 2000)), "{name}");
    }
    assert_eq!(ran.files().len(), 65, "{:?}", ran.files());
    // 64 pieces of 64 KiB, each with a line about it.
    assert!(ran.peak <= 64 * ((64 << 10) + 256), "{} bytes on their way", ran.peak);
    assert!(ran.peak > 64 << 10, "nothing was on its way");
    assert_eq!(ran.left, [Left::Together; 64]);
    assert_eq!(ran.summary().text(), "64 nodes: 64 measured\n");
    assert!(ran.summary().nodes.iter().skip(1).all(|node| node.clock.is_some_and(|clock| {
        // One machine has one clock.
        clock.offset_s.abs() <= clock.error_s + 1e-3
    })));
}

#[test]
fn one_node_is_a_fleet() {
    let ran = run(healthy(1, 3), PATIENT, |_| {});
    assert_eq!((ran.outcomes(), ran.left.as_slice()), (vec![NodeOutcome::Measured], &[Left::Together][..]));
    assert_eq!(ran.file("n0.jsonl"), Some(record("n0", 3)));
}

#[test]
fn one_rank_a_node_measures() {
    let on = |host: &str| (hello(host, "b"), Fate::Measures(script(host, 2)));
    let ran = run(["a", "b", "a", "b", "a"].map(on).to_vec(), PATIENT, |_| {});
    assert_eq!(ran.started, 2);
    let nodes: Vec<_> = ran.summary().nodes.iter().map(|node| (node.name.as_str(), node.rank, node.ranks)).collect();
    assert_eq!(nodes, [("a", 0, 3), ("b", 1, 2)]);
    assert_eq!(ran.left, [Left::Together; 5]);
}

#[test]
fn faults_are_named_and_cost_no_other_record() {
    let mut ranks = healthy(10, 40);
    let half = Duration::from_millis(100);
    let crash = State::Ended { outcome: NodeOutcome::Crashed, reason: Some("signal 11".into()) };
    let cut = record("n1", 40).lines().take(12).map(|line| format!("{line}\n")).collect::<String>();
    ranks[1].1 = Fate::Measures(Script { record: cut.clone(), lasts: half, end: crash });
    ranks[2].1 = Fate::Stops(Script { lasts: PATIENT, ..script("n2", 40) }, Duration::from_secs(2));
    ranks[3].1 = Fate::Unable("no folder for its record can be made");
    ranks[5].0.tool = "membound 0.0.1".into();
    ranks[6].0.arguments = vec!["latency".into()];
    ranks[7].1 = Fate::Babbles(script("n7", 40));
    let late = State::Ended { outcome: NodeOutcome::TimedOut, reason: Some("not done after 300 s".into()) };
    ranks[8].1 = Fate::Measures(Script { record: cut, lasts: half, end: late });
    let ran = run(ranks, IMPATIENT, |_| {});
    use NodeOutcome::*;
    let expect = [Measured, Crashed, Lost, Refused, Measured, Refused, Refused, Measured, TimedOut, Measured];
    assert_eq!(ran.outcomes(), expect);
    for n in [0, 4, 7, 9] {
        assert_eq!(ran.file(&format!("n{n}.jsonl")), Some(record(&format!("n{n}"), 40)));
    }
    assert_eq!((ran.summary().nodes[1].visits, ran.summary().nodes[8].visits), (11, 11));
    assert_eq!(ran.reason(2), "no word for 3 s");
    assert!(ran.reason(5).contains("install one version on all nodes"), "{}", ran.reason(5));
    assert!(ran.reason(6).contains("give all ranks one plan"), "{}", ran.reason(6));
    assert_eq!(ran.started, 8, "who is refused measures nothing");
    // What the silent one had finished before is kept, whole lines of it.
    let kept = ran.file("n2.jsonl").unwrap();
    assert!(kept.ends_with('\n') && record("n2", 40).starts_with(&kept) && !kept.contains("\"end\""), "{kept}");
    assert!(!ran.files().iter().any(|name| name.ends_with(".part")), "{:?}", ran.files());
    // Nobody waits in MPI_Finalize for those that are gone.
    assert!(ran.left.iter().all(|left| *left == Left::Abandoned(1)), "{:?}", ran.left);
    let text = ran.summary().text();
    assert!(text.starts_with("10 nodes: 4 measured, 1 crashed, 1 timed out, 1 lost, 3 refused\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_rank_that_never_speaks_is_lost_under_its_number() {
    let mut ranks = healthy(3, 2);
    ranks[1].1 = Fate::Mute;
    let ran = run(ranks, IMPATIENT, |_| {});
    assert_eq!(ran.outcomes(), [NodeOutcome::Measured, NodeOutcome::Lost, NodeOutcome::Measured]);
    assert_eq!((ran.summary().nodes[1].name.as_str(), ran.reason(1)), ("rank1", "its rank never spoke"));
    assert_eq!((ran.started, ran.files().len()), (2, 3));
}

#[test]
fn hosts_of_one_name_keep_their_records() {
    let ranks = ["1", "2", "3"].map(|boot| (hello("node", boot), Fate::Measures(script(boot, 2)))).to_vec();
    let ran = run(ranks, PATIENT, |_| {});
    assert_eq!(ran.files(), ["fleet.json", "node-2.jsonl", "node-3.jsonl", "node.jsonl"]);
    let boots = |n: usize| ran.summary().nodes[n].boot_id.as_str();
    assert_eq!((ran.file("node-2.jsonl"), boots(1)), (Some(record("2", 2)), "2"));
}

#[test]
fn nothing_is_measured_where_nothing_can_be_written() {
    let ran = run(healthy(3, 2), PATIENT, |folder| std::fs::remove_dir(folder).unwrap());
    assert!(ran.led.is_err());
    assert_eq!(ran.started, 0);
    assert_eq!(ran.left, [Left::Together; 3], "and all leave");
}

#[test]
fn a_record_that_cannot_be_written_is_one_nodes_fault() {
    let ran = run(healthy(3, 2), PATIENT, |folder| std::fs::create_dir(folder.join("n1.jsonl.part")).unwrap());
    assert_eq!(ran.outcomes(), [NodeOutcome::Measured, NodeOutcome::Unwritten, NodeOutcome::Measured]);
    assert!(ran.reason(1).contains("can't be written"), "{}", ran.reason(1));
}

#[test]
fn an_interrupted_run_keeps_what_is_here() {
    let mut ranks = healthy(4, 100);
    for (n, rank) in ranks.iter_mut().enumerate().filter(|(n, _)| *n != 3) {
        rank.1 = Fate::Measures(Script { lasts: PATIENT, ..script(&format!("n{n}"), 100) });
    }
    let ran = run_until(ranks, PATIENT, |_| {}, Some(Duration::from_secs(3)));
    use NodeOutcome::*;
    assert_eq!(ran.outcomes()[..3], [Interrupted; 3]);
    assert_eq!(ran.file("n3.jsonl"), Some(record("n3", 100)));
    // The own node had time for its last words, the others' halves were asked for before.
    for n in 0..3 {
        let (name, kept) = (format!("n{n}"), ran.file(&format!("n{n}.jsonl")).unwrap());
        assert!(kept.ends_with('\n') && record(&name, 100).starts_with(&kept), "{name}");
        assert!(ran.summary().nodes[n].visits >= 40, "{name}: {}", ran.summary().nodes[n].visits);
    }
    assert!(ran.summary().complete);
}

#[test]
fn a_rank_whose_leader_is_gone_leaves() {
    let (to_leader, _leader) = channel();
    let (own, inbox) = channel();
    let mut world =
        Threads { rank: 1, inbox, ranks: vec![to_leader, own], on_the_way: Default::default(), stops: None };
    let look = Duration::from_millis(5);
    let mut start = |_: &Plan| Err("nobody asked".to_string());
    let left = follow(&mut world, hello("n", "b"), &mut start, look, Duration::from_millis(50), &|| false);
    assert_eq!(left, Left::Abandoned(1));
}

#[test]
fn a_rank_that_holds_still_and_hangs_keeps_nobody() {
    let mut ranks = healthy(2, 2);
    // A second rank of n1, which is told to hold still and stops.
    ranks.push((hello("n1", "b"), Fate::Stops(script("n1", 2), Duration::from_millis(1500))));
    ranks[0].1 = Fate::Measures(Script { lasts: Duration::from_secs(3), ..script("n0", 2) });
    let ran = run(ranks, IMPATIENT, |_| {});
    assert_eq!(ran.outcomes(), [NodeOutcome::Measured; 2]);
    assert!(!ran.summary().failed());
    assert!(ran.left.iter().all(|left| *left == Left::Abandoned(0)), "{:?}", ran.left);
}

#[test]
fn the_summary_is_what_its_schema_says() {
    let mut ranks = healthy(3, 2);
    ranks[1].1 = Fate::Unable("no");
    let ran = run(ranks, PATIENT, |_| {});
    let summary: serde_json::Value = serde_json::from_str(&ran.file(FILE).unwrap()).unwrap();
    let validator = Validator::of(&schema()).unwrap();
    assert_eq!(validator.fault(&summary), None);
    assert_eq!(summary["nodes"][1]["outcome"], "refused");
    assert_eq!(summary["nodes"][2]["record"], "n2.jsonl");
    assert!(!validator.is_valid(&serde_json::json!({"schema": 1})));
}

/// What gathering costs against the number of ranks, for docs/experiments/fleet-run.md:
/// `cargo test --release --test fleet -- --ignored --nocapture gathering`.
#[test]
#[ignore = "prints a table"]
fn gathering_costs() {
    println!("nodes  pieces  MB  wall ms  CPU ms  CPU us a piece");
    for nodes in [2, 4, 8, 16, 32, 64, 256] {
        let ran = run(healthy(nodes, 2000), PATIENT, |_| {});
        let cost = ran.summary().gathering;
        println!(
            "{nodes:5} {:7} {:4.1} {:7.0} {:7.1} {:7.1}",
            cost.pieces,
            cost.bytes as f64 / 1e6,
            cost.wall_s * 1e3,
            cost.cpu_s * 1e3,
            cost.cpu_s * 1e6 / cost.pieces as f64
        );
    }
}
