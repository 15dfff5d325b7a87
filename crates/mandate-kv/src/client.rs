//! A client: asks any member, and another when that one does not answer.
//!
//! Before its first write it registers: the service gives it a number of its own, and remembers its last write under
//! that. So a write can be repeated until its outcome is known. The service forgets clients when
//! 100,000 others have written since. What a forgotten client asks for is not carried out; if it was certainly not
//! carried out before, the client registers again and repeats it, and otherwise says that its outcome is unknown.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use mandate_peer::links::{Identity, StreamTls};
use mandate_proto::identity::MemberId;
use tokio::time::{Instant, sleep, timeout_at};

use super::link::{Link, Service};
use super::types::{Operation, WriteCommand, WriteOutcome, check_key};
use super::wire::{self, KvStatus, Lane, Reply, Request, Way};

/// How long one member is waited for before another is asked, at most.
const ATTEMPT: Duration = Duration::from_secs(2);

/// With no more time than this left, nothing is begun.
const LEAST: Duration = Duration::from_millis(200);

/// How long after all was tried it is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A write may have been carried out or not. Repeating it by [`KvClient::repeat`] is safe.
    #[error("it may have been carried out or not: {0}")]
    Unknown(String),
    /// A write may have been carried out or not, and the service has forgotten this client since: repeating it does not
    /// tell. Read what is there.
    #[error(
        "it may have been carried out or not, and nobody knows any more: so many other clients have written since. \
         Read what is there"
    )]
    Expired,
    /// Nothing was changed, and nothing read.
    #[error("it was not carried out: {0}")]
    Failed(String),
}

/// A client of the service. It has one request under way at a time; for more, make more clients.
pub struct KvClient {
    links: BTreeMap<u64, Link>,
    preferred: u64,
    /// What the service knows it by; `None` until its first write.
    id: Option<u64>,
    last: Option<WriteCommand>,
    /// Whether the last write may have been carried out already.
    in_doubt: bool,
    number: u64,
    within: Duration,
}

impl KvClient {
    /// A client of the service with these members that asks `preferred` first, and gives up after `within`. Its identity
    /// is a certificate that names somebody of the service (`client.SERVICE.mandate`), or a member's.
    ///
    /// # Errors
    ///
    /// If the identity cannot be used.
    pub fn new(
        service: &str,
        addresses: &BTreeMap<MemberId, String>,
        identity: &Identity,
        preferred: MemberId,
        within: Duration,
    ) -> io::Result<Self> {
        let tls = StreamTls::new(identity, service, wire::PROTOCOL).map_err(io::Error::other)?;
        let service = Service { name: service.into(), tls };
        let link = |(id, address): (&MemberId, &String)| {
            let link = Link::new(address.as_str().into(), &service, *id, Lane::Requests);
            (u64::from(id.get()), link)
        };
        Ok(KvClient {
            links: addresses.iter().map(link).collect(),
            preferred: u64::from(preferred.get()),
            id: None,
            last: None,
            in_doubt: false,
            number: 0,
            within,
        })
    }

    /// Sets a key.
    pub async fn put(
        &mut self,
        key: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Result<(), RequestError> {
        let operation = Operation::Put { key: key.into(), value: value.into() };
        self.write(operation).await.map(drop)
    }

    /// Removes a key.
    pub async fn delete(&mut self, key: impl Into<String>) -> Result<(), RequestError> {
        self.write(Operation::Delete { key: key.into() }).await.map(drop)
    }

    /// Sets a key if it has what is expected: whether it had.
    pub async fn compare_and_swap(
        &mut self,
        key: impl Into<String>,
        expected: Option<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<bool, RequestError> {
        let operation =
            Operation::CompareAndSwap { key: key.into(), expected, value: value.into() };
        Ok(self.write(operation).await? == WriteOutcome::Done)
    }

    /// Writes under a new number.
    async fn write(&mut self, operation: Operation) -> Result<WriteOutcome, RequestError> {
        operation.check().map_err(|error| RequestError::Failed(error.to_string()))?;
        let client = match self.id {
            Some(id) => id,
            None => self.register().await?,
        };
        self.number += 1;
        self.last = Some(WriteCommand { client, number: self.number, operation });
        self.in_doubt = false;
        match self.repeat().await {
            // Nothing of it was carried out, so it may be asked for by the same client under another number.
            Err(RequestError::Expired) if !self.in_doubt => {
                let client = self.register().await?;
                self.number = 1;
                if let Some(last) = &mut self.last {
                    (last.client, last.number) = (client, 1);
                }
                self.repeat().await
            }
            result => result,
        }
    }

    /// Has the service give this client a number. Doing so twice does no harm.
    async fn register(&mut self) -> Result<u64, RequestError> {
        let command = WriteCommand { client: 0, number: 0, operation: Operation::Register };
        let reply = self.ask(|way| Request::Write { command: command.clone(), way }).await;
        match reply {
            Ok(Reply::Written(WriteOutcome::Registered(id))) => {
                (self.id, self.number) = (Some(id), 0);
                Ok(id)
            }
            Ok(other) => Err(RequestError::Failed(format!("a strange answer: {other:?}"))),
            // The write itself was not asked for yet.
            Err(error) => Err(RequestError::Failed(error.to_string())),
        }
    }

    /// Asks for the last write once more, under the same number: if it was carried out already, it is not again,
    /// and the outcome is the one that it had.
    pub async fn repeat(&mut self) -> Result<WriteOutcome, RequestError> {
        let Some(command) = self.last.clone() else {
            return Err(RequestError::Failed("there is nothing to repeat".into()));
        };
        let reply = self.ask(|way| Request::Write { command: command.clone(), way }).await;
        match reply {
            Ok(Reply::Written(WriteOutcome::Expired)) => {
                self.id = None;
                Err(RequestError::Expired)
            }
            Ok(Reply::Written(outcome)) => Ok(outcome),
            Ok(other) => Err(RequestError::Unknown(format!("a strange answer: {other:?}"))),
            Err(error) => Err(error),
        }
    }

    /// What a key has.
    pub async fn get(&mut self, key: impl Into<String>) -> Result<Option<Bytes>, RequestError> {
        let key = key.into();
        check_key(&key).map_err(|error| RequestError::Failed(error.to_string()))?;
        let reply = self.ask(|way| Request::Read { key: key.clone(), way }).await;
        match reply {
            Ok(Reply::Value(value)) => Ok(value),
            Ok(other) => Err(RequestError::Failed(format!("a strange answer: {other:?}"))),
            Err(RequestError::Unknown(reason)) => Err(RequestError::Failed(reason)),
            Err(error) => Err(error),
        }
    }

    /// How a member is.
    pub async fn status(&self, of: MemberId) -> Result<KvStatus, RequestError> {
        match self.ask_one(of, Request::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(RequestError::Failed(format!("a strange answer: {other:?}"))),
        }
    }

    /// Has the leader of the election, which must be `from`, hand over to another. Raft's leadership follows.
    pub async fn transfer(&self, from: MemberId, to: MemberId) -> Result<(), RequestError> {
        match self.ask_one(from, Request::Transfer { to: to.get() }).await? {
            Reply::Transferred => Ok(()),
            Reply::Refused(reason) => Err(RequestError::Failed(reason)),
            other => Err(RequestError::Failed(format!("a strange answer: {other:?}"))),
        }
    }

    async fn ask_one(&self, member: MemberId, request: Request) -> Result<Reply, RequestError> {
        let failed = |reason: String| RequestError::Failed(reason);
        let link = self.links.get(&u64::from(member.get()));
        let link = link.ok_or_else(|| failed(format!("there is no {member}")))?;
        let until = Instant::now() + self.within.min(ATTEMPT);
        match timeout_at(until, link.call(request)).await {
            Ok(called) => called.map_err(|error| failed(error.to_string())),
            Err(_) => Err(failed(format!("{member} does not answer"))),
        }
    }

    /// Asks one member after the other, beginning with the one that answered last.
    async fn ask(&mut self, request: impl Fn(Way) -> Request) -> Result<Reply, RequestError> {
        let until = Instant::now() + self.within;
        let mut unknown = None;
        let mut failed = "there are no members".to_owned();
        loop {
            let others = self.links.keys().copied().filter(|id| *id != self.preferred);
            let order: Vec<u64> = [self.preferred].into_iter().chain(others).collect();
            for (id, link) in order.into_iter().filter_map(|id| Some((id, self.links.get(&id)?))) {
                let left = until.saturating_duration_since(Instant::now());
                // Too little is left for an answer to come of it.
                if left <= (self.within / 8).min(LEAST) {
                    self.in_doubt |= unknown.is_some();
                    return Err(unknown.map_or(RequestError::Failed(failed), RequestError::Unknown));
                }
                let left = left.min(ATTEMPT);
                // A member that cannot do it says why, before it is given up here.
                let within_ms = u32::try_from((left * 9 / 10).as_millis()).unwrap_or(u32::MAX);
                let way = Way { passed_on: false, within_ms };
                match timeout_at(Instant::now() + left, link.call(request(way))).await {
                    Ok(Ok(Reply::Refused(reason))) => failed = reason,
                    Ok(Ok(Reply::Unknown(reason))) => unknown = Some(reason),
                    Ok(Ok(reply)) => {
                        self.preferred = id;
                        self.in_doubt |= unknown.is_some();
                        return Ok(reply);
                    }
                    Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        failed = error.to_string();
                    }
                    Ok(Err(error)) => unknown = Some(error.to_string()),
                    Err(_) => unknown = Some(format!("p{id} did not answer in time")),
                }
            }
            sleep(AGAIN.min(until.saturating_duration_since(Instant::now()))).await;
        }
    }
}
