//! Where lines live: the rule, and how sure it is.

use crate::answer::Answer;
use crate::experiments::addrmap::rows::AddrmapRow;
use crate::missing::reasons;
use crate::section::{Room, Section, Table};

use membound_core::units::significant;

const ABOUT: &str = "Two lines conflict if loading them together takes longer: they share a target, be it a channel, a bank or a \
    slice. The rule was learnt from some pairs and held against others. Confidence: lower end of the 95 % interval of the share \
    of new pairs that it foretells. Times of two loads, flushes included.";

impl Answer for Vec<AddrmapRow> {
    fn sentences(&self) -> Vec<String> {
        self.iter().filter_map(sentence).collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.is_empty() {
            return Vec::new();
        }
        vec![Section {
            id: "addrmap",
            title: "Where lines live".into(),
            about: ABOUT.into(),
            sentences: self.sentences(),
            tables: vec![table(self)],
            notes: self.iter().flat_map(masks).collect(),
            missing: reasons(self),
            ..Section::default()
        }]
    }
}

fn sentence(row: &AddrmapRow) -> Option<String> {
    if !row.quality.is_measured() {
        return None;
    }
    let (memory, [first, last]) = (row.case.memory.kind, row.known_bits);
    let about = format!("Where lines live ({memory}, address bits {first} to {last})");
    let Some(targets) = row.targets else {
        return Some(format!("{about} is undetermined: {}.", row.why.as_deref().unwrap_or("no answer")));
    };
    let rule = row.rule_words();
    let slower = row.conflict_ns.zip(row.apart_ns).map_or_else(String::new, |(conflict, apart)| {
        let [conflict, apart] = [conflict, apart].map(significant);
        format!(" Two lines of one target take {conflict} ns together, others {apart} ns.")
    });
    let (agreed, checked) = (row.agreed.unwrap_or(0), row.checked.unwrap_or(0));
    Some(format!(
        "{about}: {targets} targets, chosen by {rule}; {agreed} of {checked} new pairs behave as foretold.{slower} What the \
         targets are (channels, banks, slices) timing does not tell."
    ))
}

/// A line a memory.
fn table(rows: &[AddrmapRow]) -> Table {
    let foretold = |row: &AddrmapRow| Some(format!("{} of {}", row.agreed?, row.checked?));
    let rule = |row: &AddrmapRow| row.targets.map_or_else(|| row.verdict.clone(), |_| row.rule_words());
    Table::new("")
        .left("memory", rows.iter().map(|row| row.case.memory.kind.to_string()))
        .left("address", rows.iter().map(|row| row.address.clone()))
        .right("bits", rows.iter().map(|row| format!("{}-{}", row.known_bits[0], row.known_bits[1])))
        .right("targets", rows.iter().map(|row| row.targets.map(|targets| targets.to_string())))
        .left("rule", rows.iter().map(rule))
        .in_room(Room::Wide)
        .right("confidence", rows.iter().map(|row| row.confidence.map(|share| format!("{:.0} %", share * 100.0))))
        .right("new pairs foretold", rows.iter().map(foretold))
        .in_room(Room::Wide)
        .right("apart\nns", rows.iter().map(|row| row.apart_ns.map(significant)))
        .right("conflict\nns", rows.iter().map(|row| row.conflict_ns.map(significant)))
        .right("pairs", rows.iter().map(|row| row.pairs.to_string()))
        .flags(rows)
}

/// A line a mask.
fn masks(row: &AddrmapRow) -> Vec<String> {
    let bits = |bits: &[u32]| bits.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
    let mask = |(mask, of): (&String, &Vec<u32>)| format!("{}: mask {mask}: bits {}", row.case.memory.kind, bits(of));
    row.masks.iter().zip(&row.mask_bits).map(mask).collect()
}
