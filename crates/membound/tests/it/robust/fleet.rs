//! Ranks that say what no rank of this program says: rank 0 ends in its time and in bounded memory all the same.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use membound::fleet::lead::{Led, Task, lead, part};
use membound::fleet::word::{Hello, NodeOutcome, PIECE, Piece, State, Word};
use membound::fleet::world::{Unreachable, World};
use membound::fleet::{Measuring, Patience};

/// One rank beside rank 0, that answers each question for its record as it pleases.
struct Malicious<'a> {
    inbox: VecDeque<Vec<u8>>,
    answer: &'a dyn Fn(u64) -> Vec<u8>,
    says_bye: bool,
}

impl World for Malicious<'_> {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        2
    }

    fn send(&mut self, _: usize, message: Vec<u8>) -> Result<(), Unreachable> {
        match Word::unpack(&message) {
            Some((Word::Ping { turn }, _)) => self.inbox.push_back(Word::Pong { turn, unix_ns: u64::MAX }.pack(b"")),
            Some((Word::Ask { at, .. }, _)) => self.inbox.push_back((self.answer)(at)),
            Some((Word::Last, _)) if self.says_bye => self.inbox.push_back(Word::Bye.pack(b"")),
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, Unreachable> {
        Ok(self.inbox.pop_front().map(|message| (1, message)))
    }

    fn has_left(&mut self, _: usize) -> bool {
        true
    }
}

/// A node that is done at once.
struct Done;

impl Measuring for Done {
    fn state(&mut self) -> State {
        State::Ended { outcome: NodeOutcome::Measured, reason: None }
    }

    fn read(&mut self, _: u64, _: usize) -> std::io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn bytes(&mut self) -> u64 {
        0
    }

    fn stop(&mut self) {}
}

fn led(answer: &dyn Fn(u64) -> Vec<u8>) -> (Led, Duration, u64) {
    let folder = tempfile::tempdir().unwrap();
    let hello = |host: &str| Hello {
        boot_id: host.into(),
        slurm_node: None,
        ..Hello::here("membound", host.into(), Vec::new())
    };
    let greeting = Word::Hello(Box::new(hello("evil"))).pack(b"");
    let mut world = Malicious { inbox: VecDeque::from([greeting]), answer, says_bye: false };
    let quick = Duration::from_millis(500);
    let patience =
        Patience { node: quick, silence: quick, look: Duration::from_millis(1), pace: Duration::from_millis(1) };
    let task = Task { folder: folder.path(), hello: hello("lead"), patience, command: Vec::new(), mpi: "none".into() };
    let started = Instant::now();
    let led = lead(&mut world, task, &mut |_| Ok(Box::new(Done)), &|| false, &mut |_| {}).unwrap();
    part(&mut world, &led.gone, 1, quick, false);
    let bytes = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    (led, started.elapsed(), bytes)
}

fn piece(at: u64, bytes: u64, state: State, content: &[u8]) -> Vec<u8> {
    Word::Piece(Piece { at, bytes, state }).pack(content)
}

fn ended(outcome: NodeOutcome) -> State {
    State::Ended { outcome, reason: Some("\u{1b}[2J\u{202e}".repeat(1000)) }
}

#[test]
fn a_rank_that_never_ends_is_ended_for_it() {
    let check = |what: &str, outcome: NodeOutcome, part: &str, answer: &dyn Fn(u64) -> Vec<u8>| {
        let (led, took, bytes) = led(answer);
        let node = &led.summary.nodes[1];
        assert_eq!(node.outcome, outcome, "{what}: {node:?}");
        assert!(node.reason.as_deref().unwrap_or_default().contains(part), "{what}: {node:?}");
        assert!(took < Duration::from_secs(60), "{what}: {took:?}");
        assert!(bytes < 64 << 20, "{what}: {bytes} bytes were written");
    };
    check("always running", NodeOutcome::TimedOut, "did not end it", &|at| piece(at, at, State::Running, b""));
    check("always a line more", NodeOutcome::TimedOut, "did not end it", &|at| {
        piece(at, at + 2, State::Running, b"x\n")
    });
    check("64 MiB for 64 KiB", NodeOutcome::Lost, "were asked for", &|at| {
        piece(at, 1 << 40, State::Running, &vec![b'x'; 64 << 20])
    });
    check("one byte too much", NodeOutcome::Lost, "were asked for", &|at| {
        piece(at, 1 << 40, State::Running, &vec![b'x'; PIECE + 1])
    });
    check("ended and owes its record", NodeOutcome::Lost, "sends no more", &|at| {
        piece(at, 1 << 40, ended(NodeOutcome::Measured), b"")
    });
    check("ended as running", NodeOutcome::Crashed, "", &|at| piece(at, 0, ended(NodeOutcome::Running), b""));
    check("never answers", NodeOutcome::Lost, "no word", &|_| b"\xff\n".to_vec());
    check("another place", NodeOutcome::TimedOut, "did not end it", &|at| piece(at + 1, u64::MAX, State::Running, b""));
}
