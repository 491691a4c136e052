//! Plain experiments: work over working sets and threads, beside the kernel that does the same. The list below makes a
//! file a work, a part of the records, a subcommand and rows; `measure` has a file of the same name that does the work.

pub mod work;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plain::work::PlainWork;

/// Hands the list of plain experiments (file and work) to a macro, so that no crate has a list of its own to forget.
#[macro_export]
macro_rules! plain_experiments {
    ($list:ident) => {
        $list! {
            library: Library,
            strings: Strings,
            lines: Lines,
        }
    };
}

/// Declares plain experiments.
macro_rules! works {
    ($($file:ident: $Work:ident),+ $(,)?) => {
        $(pub mod $file;)+

        /// The work of a plain experiment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs)] // Each work says what it is.
        pub enum Plain {
            $($Work($file::$Work)),+
        }

        impl Plain {
            /// The kernel of the catalog that does the same.
            pub fn kernel(self) -> &'static str {
                match self {
                    $(Plain::$Work(work) => work.kernel()),+
                }
            }
        }

        impl fmt::Display for Plain {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Plain::$Work(work) => work.fmt(f)),+
                }
            }
        }

        $(impl Listed for $file::$Work {
            const NAME: &'static str = stringify!($file);

            fn of(work: Plain) -> Option<Self> {
                #[allow(irrefutable_let_patterns)] // A list of one.
                if let Plain::$Work(work) = work { Some(work) } else { None }
            }
        })+

        /// All plain experiments.
        pub const EXPERIMENTS: &[Experiment] = &[
            $(Experiment {
                name: <$file::$Work as Listed>::NAME,
                about: <$file::$Work as PlainWork>::ABOUT,
                works: || $file::$Work::ALL.iter().copied().map(Plain::$Work).collect(),
            }),+
        ];
    };
}

/// What the list knows of each work.
pub trait Listed: PlainWork + Send {
    /// The experiment's name: its file's.
    const NAME: &'static str;

    /// The work, if it is this experiment's.
    fn of(work: Plain) -> Option<Self>;
}

/// A plain experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The name of its subcommand and of its rows.
    pub name: &'static str,
    /// What it finds out, in a line.
    pub about: &'static str,
    /// All that is measured at each working set.
    pub works: fn() -> Vec<Plain>,
}

plain_experiments!(works);
