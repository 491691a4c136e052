//! What came of plain experiments: each work beside the kernel that does the same.

use membound_core::in_order::InOrder;

use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{Answer, SchemaOf, schema};
use crate::missing::reasons;
use crate::quality::Sampled;
use crate::rate::Rate;
use crate::row::{AnyRow, Metric, Row, any};
use crate::section::{Section, Table};
use crate::visits::{Visits, payload_bps};
use crate::wording::{about_times, is_known, threads, times};
use membound_core::case::{Case, Work};
use membound_core::kernel::StoreKind;
use membound_core::memory::MemoryKind;
use membound_core::plain;
use membound_core::plain::Listed;
use membound_core::plain_experiments;
use membound_core::record::Measurement;
use membound_core::units::{Bytes, significant};

/// Declares answers.
macro_rules! answers {
    ($($file:ident: $Work:ident),+ $(,)?) => {
        /// The answers of all plain experiments; empty where one was not asked for.
        #[derive(Debug, Clone, Default)]
        #[allow(missing_docs)] // Each work says what it is.
        pub struct Plain {
            $(pub $file: Rows<plain::$file::$Work>),+
        }

        impl Plain {
            pub(crate) const SCHEMAS: &'static [SchemaOf] = &[$(schema::<Row<Figures<plain::$file::$Work>>>),+];

            pub(crate) fn of(visits: &Visits<'_>) -> Plain {
                Plain { $($file: Rows::of(visits)),+ }
            }

            pub(crate) fn rows(&self) -> Vec<&dyn AnyRow> {
                [$(any(&self.$file.0)),+].concat()
            }
        }

        impl Answer for Plain {
            fn sentences(&self) -> Vec<String> {
                [$(self.$file.sentences()),+].concat()
            }

            fn sections(&self) -> Vec<Section> {
                [$(self.$file.section()),+].into_iter().flatten().collect()
            }
        }
    };
}

plain_experiments!(answers);

/// How fast a work is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Figures<W: Listed> {
    /// What was done.
    #[serde(skip)]
    work: W,
    /// STREAM's convention: what is read and written. Absent where nothing was measured.
    #[serde(rename = "payload_Bps")]
    pub payload_bps: Option<Rate>,
    /// Bytes copied or filled per second.
    #[serde(rename = "copied_Bps")]
    pub copied_bps: Option<Rate>,
    /// Its speed over that of the kernel with regular stores, same working set and CPUs: [ratio, low, high].
    pub over_regular: Option<[f64; 3]>,
    /// The same over the kernel with non-temporal stores.
    pub over_nt: Option<[f64; 3]>,
}

/// What tells rows of works from each other.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Keys<W: Listed> {
    /// What was done.
    work: W,
    /// Memory kind asked for.
    memory: MemoryKind,
    /// Number of threads, each with memory of its own.
    threads: usize,
    /// Their CPUs.
    cpus: Vec<u32>,
    /// Bytes of all arrays of all threads.
    working_set_bytes: Bytes,
}

impl<W: Listed> Metric for Figures<W> {
    const NAME: &'static str = W::NAME;
    const UNIT: &'static str = "B/s";
    type Keys = Keys<W>;

    fn keys(row: &Row<Self>) -> Keys<W> {
        Keys {
            work: row.work,
            memory: row.case.memory.kind,
            threads: row.case.threads(),
            cpus: row.case.cpus.clone(),
            working_set_bytes: row.case.working_set,
        }
    }

    fn what(row: &Row<Self>) -> String {
        row.work.to_string()
    }
}

/// All works of one experiment, by work, CPUs and working set.
#[derive(Debug, Clone)]
pub struct Rows<W: Listed>(Vec<Row<Figures<W>>>);

impl<W: Listed> Default for Rows<W> {
    fn default() -> Self {
        Rows(Vec::new())
    }
}

impl<W: Listed> Rows<W> {
    fn of(visits: &Visits<'_>) -> Self {
        let mut rows: Vec<Row<Figures<W>>> = visits.rows(|case| row(case, visits));
        rows.order_by_key(|row| (row.work, row.case.cpus.clone(), row.case.working_set));
        Rows(rows)
    }

    /// Rows by work and CPUs, working sets ascending.
    fn groups(&self) -> impl Iterator<Item = &[Row<Figures<W>>]> {
        self.0.chunk_by(|a, b| (a.work, &a.case.cpus) == (b.work, &b.case.cpus))
    }

    /// One per work and thread count, at the largest working set.
    fn sentences(&self) -> Vec<String> {
        self.groups().filter_map(|rows| sentence(rows.last()?)).collect()
    }

    fn section(&self) -> Option<Section> {
        (!self.0.is_empty()).then(|| Section {
            id: W::NAME,
            title: W::TITLE.into(),
            about:
                "GB/s payload, undisturbed. Beside it the speed-up over the kernel that does the same with regular and with \
                    non-temporal (nt) stores: where the second is near one, the stores bypass the caches."
                    .into(),
            sentences: self.sentences(),
            tables: self.groups().filter_map(table).collect(),
            missing: reasons(&self.0),
            ..Section::default()
        })
    }
}

fn row<'a, W: Listed>(case: &'a [&'a Measurement], visits: &'a Visits<'_>) -> Option<Row<Figures<W>>> {
    let Work::Plain(work) = case[0].case.work else { return None };
    let work = W::of(work)?;
    let sampled =
        |case: &'a [&'a Measurement]| Sampled::of(case, &visits.gauge, |visit| payload_bps(visit, visits.hz()));
    let mut ours = sampled(case);
    let payload_bps = ours.rate();
    let over = |store: StoreKind| {
        let is_twin = |other: &Case| {
            let is_kernel = other.variant().is_some_and(|v| v.kernel == work.kernel() && v.store == store);
            let alike = |case: &Case| (case.memory, case.cpus.clone(), case.working_set, case.protocol);
            is_kernel && alike(other) == alike(&case[0].case)
        };
        let twin = visits.cases.iter().find(|other| is_twin(&other[0].case))?;
        Some(payload_bps?.over(sampled(twin).rate()?)).filter(|ratio| ratio.iter().all(|end| end.is_finite()))
    };
    let figures = Figures {
        work,
        payload_bps,
        copied_bps: ours.rate_of(payload_bps, |volume| volume.stored),
        over_regular: over(StoreKind::Regular),
        over_nt: over(StoreKind::Nt),
    };
    Some(Row { case: case[0].case.clone(), quality: ours.quality, figures })
}

fn sentence<W: Listed>(row: &Row<Figures<W>>) -> Option<String> {
    let (regular, nt) = (row.over_regular?, row.over_nt?);
    let speed = format!(
        "{} of {} with {}: {} the speed of our kernel with regular stores, {} that with non-temporal stores",
        row.work,
        row.case.working_set,
        threads(row.case.threads()),
        about_times(regular),
        about_times(nt),
    );
    Some(match behaves_like(regular, nt) {
        Some(store) => format!("{speed}; it behaves like {store} stores."),
        None => format!("{speed}."),
    })
}

/// The kind of store whose kernel is as fast as the work, where the two kernels' speeds differ at all.
fn behaves_like(regular: [f64; 3], nt: [f64; 3]) -> Option<StoreKind> {
    let is_apart = [regular, nt].into_iter().all(is_known) && (regular[1] > nt[2] || nt[1] > regular[2]);
    let distance = |over: [f64; 3]| over[0].ln().abs();
    let nearer = if distance(regular) < distance(nt) { StoreKind::Regular } else { StoreKind::Nt };
    is_apart.then_some(nearer)
}

/// `None` where nothing was measured: the reason stands below all tables.
fn table<W: Listed>(rows: &[Row<Figures<W>>]) -> Option<Table> {
    rows.iter().find(|row| row.payload_bps.is_some())?;
    let caption = rows.first().map_or_else(String::new, |row| format!("{}, {}", row.work, threads(row.case.threads())));
    let over = |ratio: Option<[f64; 3]>| ratio.map(times);
    let table = Table::new(caption)
        .right("size", rows.iter().map(|row| row.case.working_set.to_string()))
        .right("GB/s", rows.iter().map(|row| row.payload_bps.map(|rate| significant(rate.value() / 1e9))))
        .right("over\nregular", rows.iter().map(|row| over(row.over_regular)))
        .right("over\nnt", rows.iter().map(|row| over(row.over_nt)))
        .flags(rows);
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_behaves_like_the_kernel_that_is_as_fast() {
        let check = |regular, nt, expect| assert_eq!(behaves_like(regular, nt), expect, "{regular:?} {nt:?}");
        // Non-temporal stores are 1.4 times as fast as regular ones: the work is as fast as these, or as those.
        check([1.01, 0.99, 1.03], [0.72, 0.70, 0.74], Some(StoreKind::Regular));
        check([1.40, 1.35, 1.45], [1.01, 0.97, 1.05], Some(StoreKind::Nt));
        check([1.01, 0.80, 1.20], [0.95, 0.75, 1.15], None);
        // One visit to each, and an interval that reaches over ten times the ratio: neither tells them apart.
        check([0.902; 3], [0.469; 3], None);
        check([1.27, 1.18, 13.3], [0.93, 0.89, 0.97], None);
    }
}
