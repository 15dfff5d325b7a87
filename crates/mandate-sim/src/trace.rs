//! A run, line by line: true time, host, what happened. The same seed gives the same bytes.

use std::fmt::Debug;
use std::io::{self, Write};

use crate::fault::MemberName;
use crate::subject::{Moment, Observation, Subject};

/// Writes a trace.
pub(crate) struct Trace<'a> {
    out: &'a mut dyn Write,
    /// The first error; after it nothing more is written.
    error: Option<io::Error>,
}

impl<'a> Trace<'a> {
    /// A trace that goes to `out`.
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Trace { out, error: None }
    }

    /// Writes what was observed.
    pub(crate) fn observe<S: Subject>(&mut self, moment: Moment, what: &Observation<'_, S>) {
        match what {
            Observation::Started(boot) => self.line(moment, "start", boot),
            Observation::Sent(message) => self.line(moment, "send", message),
            Observation::Delivered { from, message } => {
                self.line(moment, "hear", &(format_args!("{from}"), message));
            }
            Observation::Durable(stable) => self.line(moment, "write", stable),
            Observation::Told(event) => self.line(moment, "tell", event),
            Observation::Faulted(fault) => self.line(moment, "FAULT", &format_args!("{fault}")),
            // What follows from it is seen.
            Observation::Given { .. } | Observation::Taken { .. } => {}
        }
    }

    /// Writes a line of the scenario's own.
    pub(crate) fn note(&mut self, moment: Moment, text: &str) {
        self.line(moment, "NOTE", &format_args!("{text}"));
    }

    fn line(&mut self, moment: Moment, verb: &str, what: &dyn Debug) {
        if self.error.is_none() {
            let host = MemberName(moment.host).to_string();
            self.error =
                writeln!(self.out, "{:>12} {host:<3} {verb:<5} {what:?}", moment.now).err();
        }
    }
}
