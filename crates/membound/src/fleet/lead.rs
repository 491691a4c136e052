//! Rank 0: finds out who is there, says what to do, and gathers records while its own node is measured too.
//!
//! While that lasts it looks for messages only some times a second and asks few nodes at once, so that gathering takes less
//! than a hundredth of one CPU from the measurement; what others have finished until then is asked for in small turns, and
//! the bulk comes after.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::fleet::arriving::Arriving;
use crate::fleet::follow::Left;
use crate::fleet::nodes::{nodes, refusal};
use crate::fleet::summary::{ClockOffset, Gathering, NodeSummary, SCHEMA, Summary};
use crate::fleet::word::{Hello, NodeOutcome, PIECE, Piece, Plan, State, Word, shortened};
use crate::fleet::world::World;
use crate::fleet::{Awake, Begun, Measuring, Naps, Patience, doze};
use crate::now::since_1970;
use membound_core::input::RECORD_MOST;
use membound_measure::os::thread::ThreadUsage;

/// From the end of its time to the word of a node that its measurement was ended, at most.
const ENDING: Duration = Duration::from_secs(6);
/// Nodes asked at once while the own node is measured, and after that.
const AT_ONCE: [usize; 2] = [8, 64];
/// A node that takes longer to answer leaves its turn to others; its answer is still welcome.
const LATE: Duration = Duration::from_secs(1);
/// Questions about the time, of which the fastest answered one counts.
const TURNS: u32 = 5;
/// What one round of such questions may take.
const TURN: Duration = Duration::from_millis(500);
/// Between two words to ranks that hold still.
const BEAT: Duration = Duration::from_secs(10);
/// Between two versions of the summary on disk.
const REWRITE: Duration = Duration::from_secs(1);
/// What an interrupted measurement on the own node may take to end: launchers kill soon after.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What rank 0 is to do.
#[derive(Debug)]
pub struct Task<'a> {
    /// Where records go. It exists, and can be written to.
    pub folder: &'a Path,
    /// Who this rank is; its plan is everybody's.
    pub hello: Hello,
    /// How long everything may take.
    pub patience: Patience,
    /// The command line, for the summary.
    pub command: Vec<String>,
    /// What carries messages, for the summary.
    pub mpi: String,
}

/// A fleet that was led.
#[derive(Debug)]
pub struct Led {
    /// What came of it.
    pub summary: Summary,
    /// Ranks that say nothing any more.
    pub gone: HashSet<usize>,
}

/// What rank 0 knows of a node.
#[derive(Debug)]
struct Peer {
    summary: NodeSummary,
    arriving: Arriving,
    /// When it was told to measure, likewise.
    begun: Option<Duration>,
    /// When it was asked what it has not answered yet, as [`Awake`] counts.
    asked: Option<Duration>,
    /// When to ask next.
    due: Duration,
    /// It has measured; what is left is to send its record.
    has_ended: bool,
    is_settled: bool,
}

struct Lead<'a> {
    world: &'a mut dyn World,
    folder: &'a Path,
    patience: Patience,
    awake: Awake,
    summary: Summary,
    peers: Vec<Peer>,
    /// Which node a measuring rank stands for.
    node_of: HashMap<usize, usize>,
    gone: HashSet<usize>,
    /// Whose turn it is to be asked.
    turn: usize,
    said: &'a mut dyn FnMut(&str),
}

/// Leads all ranks through one plan. `start` begins to measure on this node, or says why it can't; `said` hears of each node
/// that is not measured, when that is known. Every record and the summary are on disk when this returns. An error is one of
/// writing the summary.
pub fn lead<'m>(
    world: &mut dyn World,
    task: Task<'_>,
    start: &mut dyn FnMut(&Plan) -> Begun<'m>,
    interrupted: &dyn Fn() -> bool,
    said: &mut dyn FnMut(&str),
) -> io::Result<Led> {
    let plan = Plan {
        arguments: task.hello.arguments.clone(),
        timeout_s: task.patience.node.as_secs_f64(),
        silence_s: task.patience.silence.as_secs_f64(),
    };
    let summary = Summary {
        schema: SCHEMA,
        tool: task.hello.tool.clone(),
        command: task.command,
        plan: plan.arguments.clone(),
        started_unix_s: since_1970().as_secs(),
        wall_s: 0.0,
        complete: false,
        mpi: shortened(&task.mpi, 200),
        ranks: world.size(),
        nodes: Vec::new(),
        gathering: Gathering::default(),
    };
    let mut lead = Lead {
        world,
        folder: task.folder,
        patience: task.patience,
        awake: Awake::new(),
        summary,
        peers: Vec::new(),
        node_of: HashMap::new(),
        gone: HashSet::new(),
        turn: 0,
        said,
    };
    lead.write(false)?;
    lead.meet(&task.hello, interrupted);
    lead.compare_clocks();
    let mut own = lead.begin(&plan, start);
    lead.gather(&mut own, interrupted);
    drop(own);
    lead.write(true)?;
    Ok(Led { summary: lead.summary, gone: lead.gone })
}

impl Lead<'_> {
    /// Waits until every rank has said who it is, and sorts them into nodes.
    fn meet(&mut self, own: &Hello, interrupted: &dyn Fn() -> bool) {
        let mut hellos: Vec<Option<Hello>> = vec![None; self.world.size()];
        if let Some(first) = hellos.first_mut() {
            *first = Some(own.clone());
        }
        let start = self.awake.now();
        let mut naps = Naps::up_to(Duration::from_millis(10));
        while hellos.iter().any(Option::is_none) && !interrupted() {
            let mut is_busy = false;
            while let Ok(Some((from, message))) = self.world.receive() {
                is_busy = true;
                if let (Some((Word::Hello(hello), _)), Some(place)) = (Word::unpack(&message), hellos.get_mut(from)) {
                    *place = Some(*hello);
                }
            }
            if self.awake.now() - start > self.patience.silence {
                break;
            }
            naps.nap(is_busy);
        }
        for (at, node) in nodes(&hellos).into_iter().enumerate() {
            let rank = node.ranks.first().copied().unwrap_or(0);
            let said = node.hello.clone().unwrap_or_default();
            let name = shortened(&node.name, 100);
            self.peers.push(Peer {
                arriving: Arriving::new(self.folder, &name),
                summary: NodeSummary {
                    name,
                    host: shortened(&said.host, 100),
                    boot_id: shortened(&said.boot_id, 100),
                    rank,
                    ranks: node.ranks.len(),
                    tool: shortened(&said.tool, 100),
                    clock: None,
                    outcome: NodeOutcome::Running,
                    reason: None,
                    record: None,
                    bytes: 0,
                    visits: 0,
                },
                begun: None,
                asked: None,
                due: Duration::ZERO,
                has_ended: false,
                is_settled: false,
            });
            self.node_of.insert(rank, at);
            match node.hello.as_ref().map(|hello| refusal(hello, own)) {
                None if interrupted() => self.settle(at, NodeOutcome::Interrupted, None),
                None => self.lose(at, "its rank never spoke"),
                Some(Some(reason)) => self.settle(at, NodeOutcome::Refused, Some(reason)),
                Some(None) => {}
            }
        }
    }

    /// Asks every node for its time, in several rounds, and keeps the answer that took least.
    fn compare_clocks(&mut self) {
        for turn in 0..TURNS {
            let nodes: Vec<usize> = self.open().filter(|at| *at != 0).collect();
            for some in nodes.chunks(AT_ONCE[1]) {
                self.ask_time(turn, some);
            }
        }
    }

    fn ask_time(&mut self, turn: u32, nodes: &[usize]) {
        let mut sent: HashMap<usize, Duration> = HashMap::new();
        for &at in nodes {
            let rank = self.rank(at);
            // Who has not answered the last question is not asked another.
            if (turn == 0 || self.peers.get(at).is_some_and(|peer| peer.summary.clock.is_some()))
                && self.send(at, &Word::Ping { turn })
            {
                sent.insert(rank, since_1970());
            }
        }
        let start = self.awake.now();
        let mut naps = Naps::up_to(Duration::from_micros(200));
        while !sent.is_empty() && self.awake.now() - start < TURN {
            let mut is_busy = false;
            while let Ok(Some((from, message))) = self.world.receive() {
                let now = since_1970();
                is_busy = true;
                if let Some((Word::Pong { turn: answered, unix_ns }, _)) = Word::unpack(&message)
                    && answered == turn
                    && let Some(asked) = sent.remove(&from)
                {
                    self.note_clock(from, asked, now, unix_ns);
                }
            }
            naps.nap(is_busy);
        }
    }

    fn note_clock(&mut self, rank: usize, asked: Duration, answered: Duration, unix_ns: u64) {
        let Some(peer) = self.node_of.get(&rank).and_then(|at| self.peers.get_mut(*at)) else { return };
        let clock = offset(asked.as_secs_f64(), answered.as_secs_f64(), unix_ns as f64 / 1e9);
        if peer.summary.clock.is_none_or(|so_far| clock.error_s < so_far.error_s) {
            peer.summary.clock = Some(clock);
        }
    }

    /// Says what to do, to all; begins here last.
    fn begin<'m>(&mut self, plan: &Plan, start: &mut dyn FnMut(&Plan) -> Begun<'m>) -> Option<Box<dyn Measuring + 'm>> {
        let measure: Vec<usize> = self.open().filter(|at| *at != 0).collect();
        let ranks: HashSet<usize> = measure.iter().map(|at| self.rank(*at)).collect();
        for at in measure {
            self.send(at, &Word::Measure(plan.clone()));
            self.wait_for(at);
        }
        for rank in (1..self.world.size()).filter(|rank| !ranks.contains(rank) && !self.gone.contains(rank)) {
            let _ = self.world.send(rank, Word::Still.pack(b""));
        }
        if !self.is_open(0) {
            return None;
        }
        match start(plan) {
            Ok(own) => Some(own),
            Err(reason) => {
                self.settle(0, NodeOutcome::Refused, Some(reason));
                None
            }
        }
    }

    /// A node owes its first answer from now on, though it is asked a little later.
    fn wait_for(&mut self, at: usize) {
        let now = self.awake.now();
        if let Some(peer) = self.peers.get_mut(at) {
            peer.begun = Some(now);
            peer.due = now + self.patience.pace;
        }
    }

    /// Takes in what nodes finish, until all have ended or are lost.
    fn gather(&mut self, own: &mut Option<Box<dyn Measuring + '_>>, interrupted: &dyn Fn() -> bool) {
        let (since, cpu) = (self.awake.now(), ThreadUsage::now().cpu_ns);
        let (mut beat, mut written) = (since, since);
        let mut naps = Naps::up_to(Duration::from_millis(20));
        while self.open().next().is_some() {
            if interrupted() {
                self.give_up(own);
                break;
            }
            let is_measuring = self.take_own(own);
            let mut is_busy = self.take_all();
            let now = self.awake.now();
            self.miss(now);
            is_busy |= self.ask(now, AT_ONCE[usize::from(!is_measuring)]);
            if now - beat >= BEAT.min(self.patience.silence / 3) {
                beat = now;
                self.be_heard();
            }
            if now - written >= REWRITE {
                written = now;
                // The last one counts, and reports its fault.
                let _ = self.write(false);
            }
            if is_measuring { doze(self.patience.look, interrupted) } else { naps.nap(is_busy) }
        }
        self.summary.gathering.wall_s = (self.awake.now() - since).as_secs_f64();
        self.summary.gathering.cpu_s = (ThreadUsage::now().cpu_ns - cpu) as f64 / 1e9;
    }

    /// The own node's record takes the same way as the others', without messages. Tells whether it is still measured.
    fn take_own(&mut self, own: &mut Option<Box<dyn Measuring + '_>>) -> bool {
        let Some(measuring) = own.as_mut().filter(|_| self.is_open(0)) else { return false };
        let state = measuring.state();
        let now = self.awake.now();
        if self.peers.first().is_some_and(|peer| peer.due > now) && state == State::Running {
            return true;
        }
        let bytes = measuring.bytes();
        loop {
            let at = self.peers.first().map_or(0, |peer| peer.arriving.bytes());
            let piece = match measuring.read(at, PIECE) {
                Ok(piece) => piece,
                Err(fault) => {
                    self.settle(0, NodeOutcome::Crashed, Some(format!("its record can't be read: {fault}")));
                    return false;
                }
            };
            let is_last = piece.is_empty() || at + piece.len() as u64 >= bytes;
            self.take(0, &Piece { at, bytes, state: state.clone() }, &piece);
            if is_last || !self.is_open(0) {
                return state == State::Running;
            }
        }
    }

    /// Every message that is here.
    fn take_all(&mut self) -> bool {
        let mut is_busy = false;
        while let Ok(Some((from, message))) = self.world.receive() {
            is_busy = true;
            if let Some((Word::Piece(piece), bytes)) = Word::unpack(&message)
                && let Some(at) = self.node_of.get(&from).copied()
            {
                self.summary.gathering.pieces += 1;
                self.summary.gathering.bytes += bytes.len() as u64;
                self.take(at, &piece, bytes);
            }
        }
        is_busy
    }

    /// A piece of a node's record.
    fn take(&mut self, at: usize, piece: &Piece, bytes: &[u8]) {
        let (now, pace) = (self.awake.now(), self.patience.pace);
        let Some(peer) = self.peers.get_mut(at).filter(|peer| !peer.is_settled) else { return };
        peer.asked = None;
        peer.due = now;
        if piece.at != peer.arriving.bytes() {
            // An answer to an older question.
            return;
        }
        if let Some(fault) = beyond(piece, bytes.len()) {
            return self.lose(at, &fault);
        }
        if let Err(fault) = peer.arriving.append(bytes) {
            self.settle(at, NodeOutcome::Unwritten, Some(format!("its record can't be written: {fault}")));
            return;
        }
        let here = peer.arriving.bytes();
        peer.summary.bytes = here;
        peer.has_ended = piece.state != State::Running;
        if here >= piece.bytes {
            match &piece.state {
                State::Running => peer.due = now + pace,
                State::Ended { outcome, reason } => self.settle(at, *outcome, reason.clone()),
            }
        }
    }

    /// Asks nodes whose turn it is, so many at once.
    fn ask(&mut self, now: Duration, at_once: usize) -> bool {
        let waited = |peer: &Peer| peer.asked.is_some_and(|asked| now - asked < LATE);
        let mut free = at_once.saturating_sub(self.peers.iter().filter(|peer| waited(peer)).count());
        let mut is_busy = false;
        let count = self.peers.len();
        for step in 0..count {
            if free == 0 {
                break;
            }
            let at = (self.turn + step) % count;
            let Some(peer) = self.peers.get(at) else { break };
            if at == 0 || peer.is_settled || peer.asked.is_some() || peer.due > now {
                continue;
            }
            let word = Word::Ask { at: peer.arriving.bytes(), most: PIECE };
            if self.send(at, &word)
                && let Some(peer) = self.peers.get_mut(at)
            {
                peer.asked = Some(now);
            }
            free -= 1;
            is_busy = true;
            if free == 0 {
                self.turn = at + 1;
            }
        }
        is_busy
    }

    /// Gives up nodes that have not answered for too long, and those that say that they measure for longer than they may.
    fn miss(&mut self, now: Duration) {
        let silence = self.patience.silence;
        // The own child is watched here, and others' by their ranks: what comes later than this comes from no such rank.
        let most = self.patience.node + silence + ENDING;
        let is_late = |peer: &Peer| !peer.has_ended && peer.begun.is_some_and(|begun| now - begun > most);
        let late: Vec<usize> = self.open().filter(|at| self.peers.get(*at).is_some_and(is_late)).collect();
        for at in late {
            self.gone.insert(self.rank(at));
            let reason = format!("not done after {} s, and its rank did not end it", self.patience.node.as_secs_f64());
            self.settle(at, NodeOutcome::TimedOut, Some(reason));
        }
        let is_lost = |peer: &Peer| !peer.is_settled && peer.asked.is_some_and(|asked| now - asked > silence);
        let lost: Vec<usize> =
            self.peers.iter().enumerate().filter(|(_, peer)| is_lost(peer)).map(|(at, _)| at).collect();
        for at in lost {
            self.lose(at, &format!("no word for {} s", silence.as_secs_f64()));
        }
    }

    /// Says to all that rank 0 is there. Who has not taken the last word gets no other.
    fn be_heard(&mut self) {
        for rank in (1..self.world.size()).filter(|rank| !self.gone.contains(rank)) {
            if self.world.has_left(rank) {
                let _ = self.world.send(rank, Word::Still.pack(b""));
            }
        }
    }

    /// The run was interrupted: what is here is kept.
    fn give_up(&mut self, own: &mut Option<Box<dyn Measuring + '_>>) {
        if let Some(measuring) = own {
            measuring.stop();
            let start = self.awake.now();
            while measuring.state() == State::Running && self.awake.now() - start < LAST_WORDS {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if let Some(peer) = self.peers.first_mut() {
            peer.due = Duration::ZERO;
        }
        self.take_own(own);
        self.take_all();
        let open: Vec<usize> = self.open().collect();
        open.into_iter().for_each(|at| self.settle(at, NodeOutcome::Interrupted, None));
    }

    /// No more will come from a node.
    fn settle(&mut self, at: usize, outcome: NodeOutcome, reason: Option<String>) {
        let Some(peer) = self.peers.get_mut(at) else { return };
        // No node ends as one that runs.
        let outcome = if outcome == NodeOutcome::Running { NodeOutcome::Crashed } else { outcome };
        let mut came = (outcome, reason.map(|reason| shortened(&reason, 300)));
        match peer.arriving.finish() {
            Ok(arrived) => {
                peer.summary.record = arrived.file;
                peer.summary.bytes = arrived.bytes;
                peer.summary.visits = arrived.visits;
            }
            Err(fault) if outcome != NodeOutcome::Unwritten => {
                came = (NodeOutcome::Unwritten, Some(format!("its record can't be written: {fault}")));
            }
            Err(_) => {}
        }
        (peer.summary.outcome, peer.summary.reason) = came;
        peer.is_settled = true;
        if peer.summary.outcome != NodeOutcome::Measured {
            let reason = peer.summary.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
            (self.said)(&format!("{}: {}{reason}", peer.summary.name, peer.summary.outcome.word()));
        }
    }

    fn lose(&mut self, at: usize, reason: &str) {
        self.gone.insert(self.rank(at));
        self.settle(at, NodeOutcome::Lost, Some(reason.into()));
    }

    /// Sends to a node's measuring rank; a node that can't be reached is lost.
    fn send(&mut self, at: usize, word: &Word) -> bool {
        match self.world.send(self.rank(at), word.pack(b"")) {
            Ok(()) => true,
            Err(fault) => {
                self.lose(at, &format!("it can't be reached: {fault}"));
                false
            }
        }
    }

    fn rank(&self, at: usize) -> usize {
        self.peers.get(at).map_or(0, |peer| peer.summary.rank)
    }

    fn is_open(&self, at: usize) -> bool {
        self.peers.get(at).is_some_and(|peer| !peer.is_settled)
    }

    /// Nodes of which more may come.
    fn open(&self) -> impl Iterator<Item = usize> {
        self.peers.iter().enumerate().filter(|(_, peer)| !peer.is_settled).map(|(at, _)| at)
    }

    fn write(&mut self, complete: bool) -> io::Result<()> {
        self.summary.wall_s = self.awake.now().as_secs_f64();
        self.summary.complete = complete;
        self.summary.nodes = self.peers.iter().map(|peer| peer.summary.clone()).collect();
        self.summary.write(self.folder)
    }
}

/// Lets all ranks go: together, if every one of them answers once more; else without those that don't, and without
/// MPI_Finalize, which would wait for them. `gone` need not be asked; `code` is what abandoned ranks exit with. Where
/// `is_hasty`, nobody is asked: a launcher is about to kill.
pub fn part(world: &mut dyn World, gone: &HashSet<usize>, code: i32, silence: Duration, is_hasty: bool) -> Left {
    let mut awake = Awake::new();
    let there: Vec<usize> = (1..world.size()).filter(|rank| !gone.contains(rank)).collect();
    let mut missing: HashSet<usize> = there.iter().copied().collect();
    if !is_hasty {
        for &rank in &there {
            // Who can't be reached says no Bye.
            let _ = world.send(rank, Word::Last.pack(b""));
        }
        let mut naps = Naps::up_to(Duration::from_millis(10));
        let start = awake.now();
        while !missing.is_empty() && awake.now() - start < silence {
            let mut is_busy = false;
            while let Ok(Some((from, message))) = world.receive() {
                is_busy = true;
                if matches!(Word::unpack(&message), Some((Word::Bye, _))) {
                    missing.remove(&from);
                }
            }
            naps.nap(is_busy);
        }
    }
    let abandon = !gone.is_empty() || !missing.is_empty();
    // Who is gone may yet come back to hear it.
    for rank in 1..world.size() {
        let _ = world.send(rank, Word::Leave { abandon, code }.pack(b""));
    }
    let start = awake.now();
    let patience = if is_hasty { LAST_WORDS } else { 4 * LAST_WORDS };
    while there.iter().any(|rank| !world.has_left(*rank)) && awake.now() - start < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    if abandon { Left::Abandoned(code) } else { Left::Together }
}

/// What is wrong with a piece of so many bytes, if no rank of this program sends such: else a record would never be here.
fn beyond(piece: &Piece, bytes: usize) -> Option<String> {
    let (end, has_ended) = (piece.at.saturating_add(bytes as u64), piece.state != State::Running);
    match piece {
        _ if bytes > PIECE => Some(format!("it sent {bytes} bytes where {PIECE} were asked for")),
        _ if end > RECORD_MOST => Some(format!("its record is longer than {RECORD_MOST} bytes")),
        piece if has_ended && bytes == 0 && piece.bytes > end => Some("it sends no more of its record".into()),
        _ => None,
    }
}

/// How far a clock is ahead that showed `said` at some time between `asked` and `answered`.
fn offset(asked: f64, answered: f64, said: f64) -> ClockOffset {
    ClockOffset { offset_s: said - (asked + answered) / 2.0, error_s: ((answered - asked) / 2.0).max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_known_to_half_of_the_way_there_and_back() {
        // Asked at 100, answered at 100.5; the other clock said 110 in between: ahead by 9.5 to 10.
        let clock = offset(100.0, 100.5, 110.0);
        assert_eq!((clock.offset_s, clock.error_s), (9.75, 0.25));
        assert_eq!(offset(7.0, 7.0, 6.0), ClockOffset { offset_s: -1.0, error_s: 0.0 });
    }
}
