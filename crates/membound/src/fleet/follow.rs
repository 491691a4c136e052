//! A rank other than the first: does what rank 0 says, and sleeps in between.

use std::time::Duration;

use crate::fleet::word::{Hello, NodeOutcome, PIECE, Piece, Plan, State, Word};
use crate::fleet::world::World;
use crate::fleet::{Awake, Begun, Measuring, Naps, doze};
use crate::now::since_1970;

/// How a rank takes its leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Everybody is there to finish together.
    Together,
    /// Others are gone: leave without them, with this exit code.
    Abandoned(i32),
}

/// What a rank does.
enum Role<'a> {
    /// It has not been told yet.
    Waiting,
    Still,
    /// It could not begin, and this is why.
    Unable(State),
    Measuring(Box<dyn Measuring + 'a>),
}

/// Follows rank 0 until it says that all is done. `start` begins to measure, or says why it can't. `silence` is what this
/// rank bears before it knows the plan's.
///
/// A rank that holds still looks for a message `look` apart, as one that measures does: nothing else runs on its CPU.
pub fn follow<'a>(
    world: &mut dyn World,
    hello: Hello,
    start: &mut dyn FnMut(&Plan) -> Begun<'a>,
    look: Duration,
    silence: Duration,
    interrupted: &dyn Fn() -> bool,
) -> Left {
    let mut silence = 2 * silence;
    let mut role = Role::Waiting;
    let mut awake = Awake::new();
    let mut heard = awake.now();
    let mut naps = Naps::up_to(Duration::from_millis(20));
    if world.send(0, Word::Hello(Box::new(hello)).pack(b"")).is_err() {
        return Left::Abandoned(1);
    }
    loop {
        let mut is_busy = false;
        while let Ok(Some((from, message))) = world.receive() {
            is_busy = true;
            heard = awake.now();
            match Word::unpack(&message) {
                Some((word, _)) if from == 0 => match word {
                    Word::Measure(plan) => {
                        silence = seconds(2.0 * plan.silence_s, silence);
                        role = match start(&plan) {
                            Ok(measuring) => Role::Measuring(measuring),
                            Err(reason) => {
                                let outcome = NodeOutcome::Refused;
                                Role::Unable(State::Ended { outcome, reason: Some(reason) })
                            }
                        };
                    }
                    Word::Still => {
                        if matches!(role, Role::Waiting) {
                            role = Role::Still;
                        }
                    }
                    Word::Leave { abandon: false, .. } => return Left::Together,
                    Word::Leave { code, .. } => return Left::Abandoned(code),
                    word => {
                        if let Some(message) = answer(&word, &mut role) {
                            // Should rank 0 be gone, its silence tells.
                            let _ = world.send(0, message);
                        }
                    }
                },
                _ => {}
            }
        }
        if awake.now() - heard > silence {
            return Left::Abandoned(1);
        }
        let is_measuring = match &mut role {
            Role::Measuring(measuring) => {
                if interrupted() {
                    measuring.stop();
                }
                measuring.state() == State::Running
            }
            Role::Still => true,
            _ => false,
        };
        if is_measuring && !interrupted() { doze(look, interrupted) } else { naps.nap(is_busy) }
    }
}

/// What is said to a word.
fn answer(word: &Word, role: &mut Role<'_>) -> Option<Vec<u8>> {
    match word {
        Word::Ping { turn } => {
            let unix_ns = u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX);
            Some(Word::Pong { turn: *turn, unix_ns }.pack(b""))
        }
        Word::Ask { at, most } => Some(piece(*at, (*most).min(PIECE), role)),
        Word::Last => Some(Word::Bye.pack(b"")),
        _ => None,
    }
}

/// A piece of the record. How the node stands is looked at first: what it says is over has its record's end in `bytes`.
fn piece(at: u64, most: usize, role: &mut Role<'_>) -> Vec<u8> {
    match role {
        Role::Measuring(measuring) => {
            let state = measuring.state();
            match measuring.read(at, most) {
                Ok(bytes) => Word::Piece(Piece { at, bytes: measuring.bytes(), state }).pack(&bytes),
                Err(fault) => {
                    let reason = Some(format!("its record can't be read: {fault}"));
                    Word::Piece(Piece { at, bytes: at, state: State::Ended { outcome: NodeOutcome::Crashed, reason } })
                        .pack(b"")
                }
            }
        }
        Role::Unable(state) => Word::Piece(Piece { at, bytes: 0, state: state.clone() }).pack(b""),
        Role::Waiting | Role::Still => Word::Piece(Piece { at, bytes: 0, state: State::Running }).pack(b""),
    }
}

fn seconds(number: f64, otherwise: Duration) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(otherwise)
}
