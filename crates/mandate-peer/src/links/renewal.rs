//! Certificates that are replaced while a member runs.
//!
//! What a member shows and whom it believes is read anew when its files change, and counts from the next
//! handshake on: links that are up stay up. Files are compared, not watched: systems differ in how they
//! tell of changes, some file systems tell of none, and a certificate is good for months.
//!
//! Two files cannot be replaced in one step. So what does not fit together is only an error if it is the
//! same when looked at again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::handle::LinkError;
use super::identity::{Identity, InvalidIdentity};
use super::shared::Shared;

/// Where an identity comes from.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// Certificates of the authorities that are believed.
    pub ca: PathBuf,
    /// The member's certificate, then any intermediate ones.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why new certificates are not used. The old ones stay.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// They are none.
    #[error(transparent)]
    Invalid(#[from] InvalidIdentity),
    /// They cannot be this member's.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// The other members would not believe them.
    #[error(
        "the member's certificate is not one that the authorities beside it vouch for now: {0}; are both files of the \
         same authority?"
    )]
    NotVouchedFor(String),
}

/// What a look at the files came to.
#[derive(Debug)]
pub enum RenewalCheck {
    /// Nothing to tell.
    Unchanged,
    /// New certificates are in use.
    Renewed,
    /// New ones are there, but cannot be used. Told once.
    Refused(RenewalError),
}

/// Keeps the certificates of running links as their files are.
pub struct Renewal {
    shared: Arc<Shared>,
    files: IdentityFiles,
    /// What was read last, and whether all has been said about it.
    seen: Option<(Vec<Vec<u8>>, bool)>,
}

impl Renewal {
    pub(crate) fn new(shared: Arc<Shared>, files: IdentityFiles) -> Self {
        Renewal { shared, files, seen: None }
    }

    /// Reads the files, and uses what they hold if it is new and good. With `now`, files that do not fit
    /// together are told of at once; else when they are found so twice.
    pub fn look(&mut self, now: bool) -> RenewalCheck {
        let IdentityFiles { ca, chain, key } = &self.files;
        let read = [ca, chain, key].map(|path| std::fs::read(path).unwrap_or_default()).to_vec();
        let is_same = self.seen.as_ref().is_some_and(|(seen, _)| *seen == read);
        // Tried again although it was refused before: what is not valid yet will be.
        let was_told = is_same && self.seen.as_ref().is_some_and(|(_, told)| *told);
        let outcome = Identity::from_files(ca, chain, key)
            .map_err(RenewalError::from)
            .and_then(|identity| self.shared.renew(identity));
        let told = outcome.is_ok() || is_same || now;
        self.seen = Some((read, told));
        match outcome {
            Ok(true) => RenewalCheck::Renewed,
            Err(error) if told && (now || !was_told) => RenewalCheck::Refused(error),
            _ => RenewalCheck::Unchanged,
        }
    }

    /// When the member's certificate expires.
    pub fn expires(&self) -> Option<SystemTime> {
        self.shared.papers().expires
    }

    /// Waits until the links end.
    pub async fn ended(&self) {
        self.shared.stop.cancelled().await;
    }
}
