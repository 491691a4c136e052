//! One rank's part of a visit: a seat, buffers, and messages to and from its partner.

use crate::bench::pin;
use crate::experiments::pingpong::words::{Part, tag};
use crate::memory::places::Places;
use crate::memory::region::Region;
use crate::mpi::{Mpi, MpiError};
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use crate::os::thread;
use crate::os::thread::ThreadUsage;
use membound_core::memory::Obtained;
use membound_core::units::Bytes;
use membound_core::work::pingpong::{Buffers, MessageMode};

/// Instead of repetitions: one message each way, looked at byte by byte.
pub(crate) const VERIFY: u64 = u64::MAX;
/// Messages one way before they are acknowledged: as many as in IMB's Uniband (its MAX_WIN_SIZE), which has them all under way at
/// once; here each send blocks. Without it a sender could fill the receiver's memory with messages that nobody has asked for yet.
const WINDOW: u64 = 64;
/// Messages start on a line of their own.
const LINE: usize = membound_core::units::LINE as usize;
/// The second buffer starts so many bytes beyond a page: at equal places of pages, loads from one buffer would wait for
/// stores to the other, which only look alike (4 KiB aliasing).
const SKEW: usize = 33 * LINE;
const PAGE: usize = membound_core::units::BASE_PAGE as usize;
/// Buffers up to this size are made anew for each visit: where pages happen to lie is luck, which must show from visit to
/// visit. Larger ones have enough pages to even it out, and take long to make.
const RENEWED: Bytes = Bytes::mib(8);

/// What a rank says of one round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Ticks of its own clock, from its pair's handshake to its end.
    pub ticks: u64,
    pub lost_us: u64,
    pub switches: u64,
    pub faults: u64,
    /// 1 if it is not on its CPU any more.
    pub is_elsewhere: u64,
    /// Bytes that are not what was sent.
    pub wrong_bytes: u64,
}

impl Report {
    pub const BYTES: usize = 48;

    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let fields = [self.ticks, self.lost_us, self.switches, self.faults, self.is_elsewhere, self.wrong_bytes];
        let mut bytes = [0; Self::BYTES];
        bytes.chunks_exact_mut(8).zip(fields).for_each(|(to, field)| to.copy_from_slice(&field.to_le_bytes()));
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut fields =
            bytes.chunks_exact(8).map(|field| field.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte)));
        let mut next = || fields.next().unwrap_or(0);
        Report {
            ticks: next(),
            lost_us: next(),
            switches: next(),
            faults: next(),
            is_elsewhere: next(),
            wrong_bytes: next(),
        }
    }
}

/// Memory to send from and to receive to.
pub(crate) struct Buffer {
    region: Region,
    /// The CPU that touched it first.
    cpu: Option<u32>,
}

/// Where a message is sent from, and where one is received to.
#[derive(Debug, Clone, Copy)]
struct Lane {
    sent_at: usize,
    received_at: usize,
}

/// The two buffers, or the one for both, and where in them the next message lies.
struct Lanes {
    buffer: Buffer,
    size: usize,
    /// Bytes from one message to the next; messages, before the first comes again.
    stride: usize,
    slots: usize,
    next: usize,
    /// Where the buffer to receive to starts: behind the other, or where that starts.
    received_at: usize,
}

impl Lanes {
    fn new(part: &Part, kept: Option<Buffer>) -> Result<Self, NoVisit> {
        let (work, size) = (part.work()?, part.case.working_set.0 as usize);
        let stride = size.next_multiple_of(LINE).max(LINE);
        let slots = match work.buffers {
            Buffers::Same | Buffers::InPlace => 1,
            Buffers::Rotating => (work.pool.0 as usize / stride).max(2),
        };
        let received_at = match (work.buffers, work.mode) {
            (Buffers::InPlace, MessageMode::Exchange) => {
                return Err(NoVisit::impossible("an exchange takes two buffers"));
            }
            (Buffers::InPlace, _) => 0,
            _ => (stride * slots).next_multiple_of(PAGE) + SKEW,
        };
        let bytes = Bytes((received_at + stride * slots) as u64);
        let fits = |kept: &Buffer| {
            let is_large = kept.region.bytes() > RENEWED && bytes > RENEWED;
            is_large && kept.region.bytes() >= bytes && kept.cpu == part.seat.cpu
        };
        let buffer = match kept.filter(fits) {
            Some(kept) => kept,
            None => {
                let mut region = Region::new(part.case.memory, bytes, &Places::default())?;
                if !region.is_writable() {
                    return Err(NoVisit::Unwritable("messages are received into memory"));
                }
                region.contents().fill(1);
                Buffer { region, cpu: part.seat.cpu }
            }
        };
        Ok(Lanes { buffer, size, stride, slots, next: 0, received_at })
    }

    /// The next message.
    fn next(&mut self) -> Lane {
        let at = self.next * self.stride;
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
        Lane { sent_at: at, received_at: self.received_at + at }
    }

    fn sent(&mut self, lane: Lane) -> &mut [u8] {
        &mut self.buffer.region.contents()[lane.sent_at..][..self.size]
    }

    fn received(&mut self, lane: Lane) -> &mut [u8] {
        &mut self.buffer.region.contents()[lane.received_at..][..self.size]
    }

    /// Both at once, where there are two buffers.
    fn both(&mut self, lane: Lane) -> (&mut [u8], &mut [u8]) {
        let (sent, received) = self.buffer.region.contents().split_at_mut(self.received_at);
        (&mut sent[lane.sent_at..][..self.size], &mut received[lane.sent_at..][..self.size])
    }
}

/// From now on this rank runs where it disturbs least: on any CPU of its control group. What the launcher bound it to may be another
/// rank's seat.
pub(crate) fn rest() {
    thread::unpin(thread::thread_id());
    thread::unbind();
}

/// A rank on its seat.
pub(crate) struct Player<'a> {
    mpi: &'a Mpi,
    ticker: Ticker,
    mode: MessageMode,
    cpu: Option<u32>,
    partner: usize,
    is_first: bool,
    lanes: Lanes,
    /// Messages looked at so far; each has a pattern of its own.
    verified: u8,
}

impl<'a> Player<'a> {
    /// Sits down: goes to its CPU, makes sure that it is there, and touches its buffers from there. Where that fails it gets up again.
    pub fn new(mpi: &'a Mpi, ticker: Ticker, part: &Part, kept: Option<Buffer>) -> Result<Self, NoVisit> {
        Self::seated(mpi, ticker, part, kept).inspect_err(|_| rest())
    }

    fn seated(mpi: &'a Mpi, ticker: Ticker, part: &Part, kept: Option<Buffer>) -> Result<Self, NoVisit> {
        let cpu = part.seat.cpu;
        if let Some(cpu) = cpu {
            pin(cpu)?;
            if let Some(found) = thread::current_cpu().filter(|found| *found != cpu) {
                let reason = format!("rank {} is on CPU {found} and not on CPU {cpu}", mpi.rank());
                return Err(NoVisit::impossible(reason));
            }
        }
        let (mode, lanes) = (part.work()?.mode, Lanes::new(part, kept)?);
        let (partner, is_first) = (part.partner, part.is_first);
        Ok(Player { mpi, ticker, mode, cpu, partner, is_first, lanes, verified: 0 })
    }

    /// What memory it has.
    pub fn obtained(&self) -> Obtained {
        self.lanes.buffer.region.inspect(self.lanes.buffer.region.bytes())
    }

    /// Gets up. Its buffers may be of use once more.
    pub fn leave(self) -> Option<Buffer> {
        rest();
        (self.lanes.buffer.region.bytes() > RENEWED).then_some(self.lanes.buffer)
    }

    /// So many repetitions with the partner, after a handshake.
    pub fn play(&mut self, repetitions: u64) -> Result<Report, MpiError> {
        self.shake_hands()?;
        if repetitions == VERIFY {
            return Ok(Report { wrong_bytes: self.verify()?, ..Report::default() });
        }
        let before = ThreadUsage::now();
        let start = self.ticker.now();
        self.messages(repetitions)?;
        let ticks = (self.ticker.now() - start).max(1);
        let lost = before.until_now();
        let is_elsewhere = self.cpu.is_some_and(|cpu| thread::current_cpu().is_some_and(|found| found != cpu));
        Ok(Report {
            ticks,
            lost_us: lost.lost_us.into(),
            switches: lost.switches.into(),
            faults: lost.faults.into(),
            is_elsewhere: is_elsewhere.into(),
            wrong_bytes: 0,
        })
    }

    fn shake_hands(&self) -> Result<(), MpiError> {
        if self.is_first {
            self.mpi.send(&[], self.partner, tag::SYNC)?;
            self.mpi.receive(&mut [], self.partner, tag::SYNC)?;
        } else {
            self.mpi.receive(&mut [], self.partner, tag::SYNC)?;
            self.mpi.send(&[], self.partner, tag::SYNC)?;
        }
        Ok(())
    }

    /// What is timed.
    fn messages(&mut self, repetitions: u64) -> Result<(), MpiError> {
        let (mpi, partner, lanes) = (self.mpi, self.partner, &mut self.lanes);
        for repetition in 1..=repetitions {
            let is_acknowledged = repetition % WINDOW == 0 || repetition == repetitions;
            let lane = lanes.next();
            match (self.mode, self.is_first) {
                (MessageMode::PingPong, true) => {
                    mpi.send(lanes.sent(lane), partner, tag::BALL)?;
                    mpi.accept(lanes.received(lane), partner, tag::BALL)?;
                }
                (MessageMode::PingPong, false) => {
                    mpi.accept(lanes.received(lane), partner, tag::BALL)?;
                    mpi.send(lanes.sent(lane), partner, tag::BALL)?;
                }
                (MessageMode::OneWay, true) => {
                    mpi.send(lanes.sent(lane), partner, tag::BALL)?;
                    if is_acknowledged {
                        mpi.accept(&mut [], partner, tag::SYNC)?;
                    }
                }
                (MessageMode::OneWay, false) => {
                    mpi.accept(lanes.received(lane), partner, tag::BALL)?;
                    if is_acknowledged {
                        mpi.send(&[], partner, tag::SYNC)?;
                    }
                }
                (MessageMode::Exchange, _) => {
                    let (sent, received) = lanes.both(lane);
                    mpi.exchange(sent, received, partner, tag::BALL)?;
                }
            }
        }
        Ok(())
    }

    /// One message each way; bytes that did not arrive as they were sent.
    fn verify(&mut self) -> Result<u64, MpiError> {
        self.verified = self.verified.wrapping_add(1);
        let (mpi, partner, number, lanes) = (self.mpi, self.partner, self.verified, &mut self.lanes);
        let own = |at| pattern(mpi.rank(), number, at);
        let theirs = |at| pattern(partner, number, at);
        let lane = lanes.next();
        if self.mode == MessageMode::Exchange {
            let (sent, received) = lanes.both(lane);
            fill(sent, own);
            fill(received, |at| !theirs(at));
            let length = mpi.exchange(sent, received, partner, tag::BALL)?;
            return Ok(wrong(received, length, theirs));
        }
        let mut found = 0;
        for is_sending in [self.is_first, !self.is_first] {
            if is_sending {
                fill(lanes.sent(lane), own);
                mpi.send(lanes.sent(lane), partner, tag::BALL)?;
            } else {
                let received = lanes.received(lane);
                fill(received, |at| !theirs(at));
                let length = mpi.receive(received, partner, tag::BALL)?;
                found = wrong(received, length, theirs);
            }
        }
        Ok(found)
    }
}

fn fill(bytes: &mut [u8], by: impl Fn(usize) -> u8) {
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = by(at));
}

/// Bytes that are not as they should be, or did not come.
fn wrong(received: &[u8], length: usize, expect: impl Fn(usize) -> u8) -> u64 {
    let wrong = received.iter().enumerate().filter(|(at, byte)| **byte != expect(*at)).count();
    (wrong + received.len().abs_diff(length)) as u64
}

/// The byte at a place of the n-th message that a rank sends to be looked at: other ranks, messages and places differ.
fn pattern(rank: usize, number: u8, at: usize) -> u8 {
    let mixed = (at as u64 ^ (rank as u64) << 40 ^ u64::from(number) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::{Case, Work};
    use membound_core::memory::{MemoryKind, MemorySpec};
    use membound_core::work::pingpong::{MessagePath, PingPong, Seat};

    fn part(buffers: Buffers, size: u64, pool: u64) -> Part {
        let seat = Seat { host: 0, cpu: None };
        let work = PingPong {
            mode: MessageMode::PingPong,
            buffers,
            path: MessagePath::Cache,
            pairs: vec![[seat; 2]],
            spread: false,
            pool: Bytes(pool),
            oversubscribed: false,
        };
        let case = Case::new(Work::PingPong(work), MemorySpec::of(MemoryKind::Heap), vec![0, 1], Bytes(size));
        Part { case, seat, partner: 1, is_first: true }
    }

    #[test]
    fn rotating_messages_never_overlap_and_come_again_after_the_pool() {
        let mut lanes = Lanes::new(&part(Buffers::Rotating, 100, 1024), None).unwrap();
        let mut place = || {
            let lane = lanes.next();
            let (sent, received) = lanes.both(lane);
            assert_eq!((sent.len(), received.len()), (100, 100));
            [sent.as_ptr() as usize, received.as_ptr() as usize]
        };
        let places: Vec<[usize; 2]> = (0..9).map(|_| place()).collect();
        assert!(places.windows(2).take(7).all(|two| two[1][0] == two[0][0] + 128 && two[1][1] == two[0][1] + 128));
        assert_eq!(places[8], places[0], "1024 B hold eight of 128 B");
        let apart = places[0][1] - places[0][0];
        assert!(apart >= 1024 && apart % PAGE == SKEW, "{apart}");
    }

    #[test]
    fn same_buffers_stay_where_they_are_and_may_be_empty() {
        let mut lanes = Lanes::new(&part(Buffers::Same, 0, 0), None).unwrap();
        let [first, second] = [lanes.next(), lanes.next()];
        assert_eq!((first.sent_at, first.received_at), (second.sent_at, second.received_at));
        assert!(lanes.sent(first).is_empty() && first.received_at != first.sent_at);
    }

    #[test]
    fn in_place_what_came_is_sent_back() {
        let mut lanes = Lanes::new(&part(Buffers::InPlace, 100, 0), None).unwrap();
        let lane = lanes.next();
        lanes.received(lane)[99] = 77;
        assert_eq!((lanes.sent(lane).len(), lanes.sent(lane)[99]), (100, 77));
        let mut exchange = part(Buffers::InPlace, 100, 0);
        if let Work::PingPong(work) = &mut exchange.case.work {
            work.mode = MessageMode::Exchange;
        }
        assert!(Lanes::new(&exchange, None).is_err());
    }

    #[test]
    fn only_large_buffers_are_used_again_and_only_on_the_same_cpu() {
        let large = part(Buffers::Same, 16 << 20, 0);
        let made = |part: &Part, kept| Lanes::new(part, kept).unwrap().buffer;
        let again = |buffer: Buffer, part: &Part| {
            let address = buffer.region.address();
            made(part, Some(buffer)).region.address() == address
        };
        assert!(again(made(&large, None), &large));
        let moved = Part { seat: Seat { host: 0, cpu: Some(1) }, ..large.clone() };
        // A region that is given back may be had again at the same address: a smaller one must not be the large one.
        assert_eq!(made(&moved, Some(made(&large, None))).cpu, Some(1));
        assert!(made(&part(Buffers::Same, 64, 0), Some(made(&large, None))).region.bytes() < Bytes::mib(1));
    }

    #[test]
    fn a_report_survives_its_way() {
        let report =
            Report { ticks: u64::MAX - 1, lost_us: 2, switches: 3, faults: 4, is_elsewhere: 1, wrong_bytes: 1 << 40 };
        assert_eq!(Report::from_bytes(&report.to_bytes()), report);
    }

    #[test]
    fn patterns_differ_by_rank_message_and_place() {
        let text = |rank, number| (0..64).map(|at| pattern(rank, number, at)).collect::<Vec<_>>();
        assert_ne!(text(0, 1), text(1, 1));
        assert_ne!(text(0, 1), text(0, 2));
        let same = text(0, 1).windows(2).filter(|two| two[0] == two[1]).count();
        assert!(same < 8, "{same}");
    }
}
