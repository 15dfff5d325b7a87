//! Bugs to put back on purpose: a harness is believed once it has caught some. Each protocol lists its own, once.

/// A bug that can be put back.
pub trait Bug: Copy + 'static {
    /// All bugs of the protocol.
    const ALL: &'static [Self];

    /// What the command line calls it.
    fn name(self) -> &'static str;

    /// The protocol under whose runs it shows, as the command line calls that.
    fn protocol(self) -> &'static str;

    /// What is wrong.
    fn about(self) -> &'static str;

    /// The one of this name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Declares a protocol's `Mutant`: variant, name, protocol, what is wrong.
macro_rules! mutants {
    ($($variant:ident, $name:literal, $protocol:literal, $about:literal;)*) => {
        /// Bugs to put back on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $about] $variant,)*
        }

        impl $crate::mutant::Bug for Mutant {
            const ALL: &'static [Self] = &[$(Mutant::$variant,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Mutant::$variant => $name,)*
                }
            }

            fn protocol(self) -> &'static str {
                match self {
                    $(Mutant::$variant => $protocol,)*
                }
            }

            fn about(self) -> &'static str {
                match self {
                    $(Mutant::$variant => $about,)*
                }
            }
        }
    };
}

pub(crate) use mutants;
