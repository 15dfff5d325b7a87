//! The first words on a connection, once TLS has told who speaks.
//!
//! The dialler sends magic, its lowest version, life, the number of its state, what it started from, group and settings on a stream of
//! its own; the accepting side answers with the same. The stream goes on with what the two say about the link
//! (`control`). TLS already proves the group by the name in the certificate, but a certificate may name a member of two
//! groups: so both sides say which one they mean. Settings come last; two of their lines say which versions the member
//! speaks and of which release it is. All this is written in the same way whatever the versions are: it is how members learn of each
//! other's.

use mandate_runtime::Start;

use super::failure::{Failure, Refusal, printable};
use super::limits::{MAX_GROUP_BYTES, MAX_SETTINGS_BYTES};
use super::settings::Settings;
use super::versions::Versions;

/// So that another protocol is told apart at once.
const MAGIC: [u8; 4] = *b"MNDT";

/// Magic, version, life, the number of the state, what it started from, and the length of the group's name.
const FIXED_BYTES: usize = 4 + 4 + 8 + 8 + 1 + 1;

/// The lines of the settings that are about the program, and not about its configuration.
const SPEAKS: &str = "speaks";
const RELEASE: &str = "release";

/// The release that this is.
pub(crate) const OWN_RELEASE: &str = env!("CARGO_PKG_VERSION");

/// What both sides say about themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Of the protocol within frames.
    pub(crate) speaks: Versions,
    /// The release of the program; none said it up to version 4.
    pub(crate) release: Option<String>,
    /// A random number drawn at each start: tells a process from another of the same member.
    pub(crate) life: u64,
    /// The random number of its state's file: tells a state from another of the same member.
    pub(crate) disk: u64,
    pub(crate) start: Start,
    pub(crate) group: String,
    /// What must be alike, and what is warned of.
    pub(crate) settings: Settings,
}

impl Hello {
    /// As bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let speaks = self.speaks();
        bytes.extend(speaks.head().to_be_bytes());
        bytes.extend(self.life.to_be_bytes());
        bytes.extend(self.disk.to_be_bytes());
        bytes.push(match self.start {
            Start::Stored => 0,
            Start::New => 1,
            Start::Lost => 2,
            Start::Changed => 3,
            Start::Join => 4,
            Start::Auto => 5,
        });
        let group = &self.group.as_bytes()[..self.group.len().min(MAX_GROUP_BYTES)];
        bytes.push(group.len() as u8);
        bytes.extend(group);
        let release = self.release.as_ref().map(|release| (RELEASE, release.clone()));
        let settings =
            self.settings.encode_with([(SPEAKS, speaks.said())].into_iter().chain(release));
        bytes.extend((settings.len() as u16).to_be_bytes());
        bytes.extend(settings.as_bytes());
        bytes
    }

    /// Reads the other side's.
    pub(crate) async fn read(&self, stream: &mut quinn::RecvStream) -> Result<Hello, Failure> {
        let mut fixed = [0; FIXED_BYTES];
        stream.read_exact(&mut fixed).await?;
        let mut rest = &fixed[..];
        let magic: [u8; 4] = take(&mut rest)?;
        let speaks = Versions::of_head(u32::from_be_bytes(take(&mut rest)?));
        let life = u64::from_be_bytes(take(&mut rest)?);
        let disk = u64::from_be_bytes(take(&mut rest)?);
        let [start, length] = take(&mut rest)?;
        if magic != MAGIC || usize::from(length) > MAX_GROUP_BYTES {
            return Err(Refusal::NoGreeting.into());
        }
        let start = match start {
            0 => Start::Stored,
            1 => Start::New,
            2 => Start::Lost,
            3 => Start::Changed,
            4 => Start::Join,
            5 => Start::Auto,
            _ => return Err(Refusal::NoGreeting.into()),
        };
        let mut group = vec![0; usize::from(length)];
        stream.read_exact(&mut group).await?;
        let group = String::from_utf8(group).map_err(|_| Refusal::NoGreeting)?;
        let mut settings = read_settings(stream).await?;
        let speaks = settings.take(SPEAKS).map_or(speaks, |said| speaks.with_said(&said));
        let release = settings.take(RELEASE).map(|release| printable(&release));
        Ok(Hello { speaks, release, life, disk, start, group, settings })
    }

    /// What it speaks with these settings.
    pub(crate) fn speaks(&self) -> Versions {
        self.speaks.since(self.settings.spoken_since())
    }

    /// Whether the other side's fits ours, and which version the link then speaks.
    pub(crate) fn check(&self, theirs: &Hello) -> Result<u32, Refusal> {
        if theirs.group != self.group {
            let (theirs, ours) = (printable(&theirs.group), self.group.clone());
            return Err(Refusal::OtherGroup { theirs, ours });
        }
        let (ours, others) = (self.speaks(), theirs.speaks());
        let version = ours.common(others);
        let version = version.ok_or(Refusal::OtherVersion { theirs: others, ours })?;
        if !self.settings.agrees(&theirs.settings) {
            return Err(self.differs(theirs.settings.clone()));
        }
        Ok(version)
    }

    /// That the other side has these settings, and must not.
    pub(crate) fn differs(&self, theirs: Settings) -> Refusal {
        Refusal::OtherSettings { theirs: Box::new(theirs), ours: Box::new(self.settings.clone()) }
    }
}

async fn read_settings(stream: &mut quinn::RecvStream) -> Result<Settings, Failure> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > MAX_SETTINGS_BYTES {
        return Err(Refusal::NoGreeting.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    let text = String::from_utf8(text).map_err(|_| Refusal::NoGreeting)?;
    Ok(Settings::decode(&text))
}

/// The next bytes of a greeting.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Refusal> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Refusal::NoGreeting)?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use mandate_proto::identity::MemberId;
    use mandate_proto::pole::installation::ConfigId;

    use super::*;

    fn hello(version: u32, group: &str) -> Hello {
        let (group, settings) = (group.to_owned(), Settings::default());
        let speaks = Versions { protocol: 0, oldest: version, newest: version };
        Hello { speaks, release: None, life: 7, disk: 9, start: Start::Lost, group, settings }
    }

    #[test]
    fn a_mismatch_names_both_sides() {
        let ours = hello(1, "shop");
        assert_eq!(ours.check(&Hello { life: 8, ..ours.clone() }), Ok(1));
        let version = ours.check(&hello(2, "shop")).unwrap_err().to_string();
        assert!(version.contains("version 2") && version.contains("version 1"), "{version}");
        let group = ours.check(&hello(1, "bank")).unwrap_err().to_string();
        assert!(group.contains("bank") && group.contains("shop"), "{group}");
    }

    #[test]
    fn the_greeting_has_the_documented_bytes() {
        let bytes = hello(3, "ab").encode();
        let expected =
            b"MNDT\0\0\0\x03\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09\x02\x02ab\0\x0bspeaks 3-3\n";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn another_list_of_members_is_refused_and_both_are_named() {
        let settings = |digest, ids: &[u32]| {
            let ids: Vec<_> = ids.iter().copied().map(MemberId::new).collect();
            Settings::new(ConfigId::new(digest), &ids, "leased")
        };
        let ours = Hello { settings: settings(1, &[1, 2, 3]), ..hello(1, "shop") };
        let theirs = Hello { settings: settings(2, &[1, 2, 3, 4, 5]), ..hello(1, "shop") };
        let refusal = ours.check(&theirs).unwrap_err().to_string();
        assert!(refusal.contains("members p1 p2 p3, guarantee leased"), "{refusal}");
        assert!(refusal.contains("members p1 p2 p3 p4 p5, guarantee leased"), "{refusal}");
    }
}
