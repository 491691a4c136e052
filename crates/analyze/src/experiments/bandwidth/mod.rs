//! Kernels over streams: levels, store kinds, scaling over threads, STREAM.

pub mod answer;
pub mod charts;
pub mod levels;
pub mod rows;
pub mod sections;
pub mod stores;
pub mod stream;

use crate::answer::{Answer, SchemaOf};
use crate::experiments::bandwidth::stream::StreamTable;
use crate::row::AnyRow;
use crate::section::Section;

impl Answer for Vec<StreamTable> {
    const NAME: &'static str = "stream";
    const SCHEMAS: &'static [SchemaOf] = &[];

    fn rows(&self) -> Vec<&dyn AnyRow> {
        Vec::new()
    }

    fn sentences(&self) -> Vec<String> {
        stream::sentence(self).into_iter().collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.is_empty() { Vec::new() } else { vec![stream::section(self)] }
    }
}
