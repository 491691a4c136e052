//! From records to answers, and their looks. Pure: it measures nothing and runs on any machine.

pub mod across;
pub mod answer;
pub mod break_even;
pub mod chart;
pub mod experiments;
pub mod flag;
pub mod hierarchy;
pub mod missing;
pub mod of_record;
pub mod output;
pub mod quality;
pub mod rate;
pub mod report;
pub mod row;
pub mod section;
pub mod visits;
pub mod warning;
pub mod wording;
