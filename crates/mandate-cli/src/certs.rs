//! `mandate certs`: a small certificate authority for a group, and a certificate for each member.
//!
//! Members authenticate each other always, so a group needs certificates before it can start. What is
//! there is kept: running the command again adds the members that have none, and `--renew` makes new
//! certificates for those that are named, with the same authority. Members that run use them without a
//! restart.
//!
//! The authority is replaced in three steps, so that there is no moment in which two members do not believe
//! each other: `--rotate-ca` makes a new one and leaves the old one beside it in `ca.pem`, which all members get;
//! `--renew` makes certificates of the new one; `--retire-ca` takes the old one out, when no member needs it
//! any more.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use mandate_proto::identity::MemberId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use crate::exit::Exit;
use crate::output::{self, Format};

/// Make certificates for the members of a group.
///
/// Members authenticate each other always: each needs a certificate of the group's authority.
///
/// Run it again for what is missing; what is there is kept. Members that run use new files without a restart. A certificate alone
/// makes no member: `mandate member add` does (docs/peer.md#members-that-come-and-go).
#[derive(Debug, clap::Args)]
pub struct CertsArgs {
    /// The group's name: small letters, digits and hyphens.
    #[arg(long)]
    pub group: String,
    /// Where to put them.
    #[arg(long, default_value = "certs", value_name = "DIRECTORY")]
    pub dir: PathBuf,
    /// How many days certificates are valid; the authority, ten times as long.
    #[arg(long, default_value_t = 365)]
    pub days: u32,
    /// Make new certificates for these members even if they have some.
    #[arg(long)]
    pub renew: bool,
    #[command(flatten)]
    pub rotation: RotationArgs,
    /// The members, such as p1 p2 p3.
    #[arg(required_unless_present_any = ["rotate_ca", "retire_ca"], value_name = "MEMBER")]
    pub members: Vec<MemberId>,
}

/// A change of the authority.
#[derive(Debug, Default, clap::Args)]
#[group(multiple = false)]
pub struct RotationArgs {
    /// Make a new authority, and believe both for now.
    #[arg(long)]
    rotate_ca: bool,
    /// Believe only the new one, when every member has a certificate of it.
    #[arg(long)]
    retire_ca: bool,
}

#[derive(Serialize)]
pub struct Document {
    authority: PathBuf,
    members: Vec<MemberDocument>,
}

#[derive(Serialize)]
struct MemberDocument {
    id: String,
    certificate: PathBuf,
    key: PathBuf,
    made: bool,
}

pub fn run(args: &CertsArgs, format: Format) -> anyhow::Result<Exit> {
    let (document, made_authority) = make(args)?;
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document, made_authority, args))?,
    }
    Ok(Exit::Success)
}

/// Certificates for a short-lived group on this host: below `directory`, where its configurations look for them.
pub fn make_for_a_day(group: &str, directory: &Path, members: &[MemberId]) -> anyhow::Result<()> {
    make(&CertsArgs {
        group: group.into(),
        dir: directory.join("certs"),
        days: 1,
        renew: false,
        rotation: Default::default(),
        members: members.to_vec(),
    })?;
    Ok(())
}

/// Makes what is missing; what there is then, and whether the authority is new.
pub fn make(args: &CertsArgs) -> anyhow::Result<(Document, bool)> {
    check_name(&args.group)?;
    let made = fs::create_dir_all(&args.dir);
    made.with_context(|| format!("could not make {}", args.dir.display()))?;
    let (issuer, made_authority) = match args.rotation {
        RotationArgs { rotate_ca: true, .. } => rotate(args)?,
        RotationArgs { retire_ca: true, .. } => retire(args)?,
        RotationArgs { .. } => authority(args)?,
    };
    let issued = args.members.iter().map(|member| issue(args, *member, &issuer));
    let members = issued.collect::<anyhow::Result<Vec<_>>>()?;
    Ok((Document { authority: args.dir.join("ca.pem"), members }, made_authority))
}

/// A name that can be part of a host name, which is how certificates carry it.
fn check_name(group: &str) -> anyhow::Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    anyhow::ensure!(
        !group.is_empty() && group.len() <= 63 && group.chars().all(plain),
        "`{group}` cannot be the name of a group: use up to 63 small letters, digits and hyphens"
    );
    Ok(())
}

/// The group's authority: the one that is there, or a new one.
fn authority(args: &CertsArgs) -> anyhow::Result<(Issuer<'static, KeyPair>, bool)> {
    let (certificate, key) = (args.dir.join("ca.pem"), args.dir.join("ca.key"));
    if certificate.exists() {
        let pem = read(&certificate)?;
        let key = KeyPair::from_pem(&read(&key)?)
            .with_context(|| format!("{} is no private key", key.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key)
            .with_context(|| format!("{} is no certificate", certificate.display()))?;
        return Ok((issuer, false));
    }
    let (issuer, pem) = new_authority(args)?;
    write_new(&key, &issuer.key().serialize_pem(), true)?;
    write_new(&certificate, &pem, false)?;
    Ok((issuer, true))
}

/// A new authority, and its certificate.
fn new_authority(args: &CertsArgs) -> anyhow::Result<(Issuer<'static, KeyPair>, String)> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("mandate group {}", args.group));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, args.days.saturating_mul(10));
    let pair = KeyPair::generate()?;
    let pem = params.self_signed(&pair)?.pem();
    Ok((Issuer::new(params, pair), pem))
}

/// A new authority that is believed beside the old one.
fn rotate(args: &CertsArgs) -> anyhow::Result<(Issuer<'static, KeyPair>, bool)> {
    let (certificate, key) = (args.dir.join("ca.pem"), args.dir.join("ca.key"));
    let old = read(&certificate)?;
    anyhow::ensure!(
        certificates(&old).len() == 1,
        "{} holds {} authorities: the last rotation is not over. Finish it with --renew for all members, and then \
         --retire-ca",
        certificate.display(),
        certificates(&old).len()
    );
    let (issuer, pem) = new_authority(args)?;
    // The new one first: it is the one that issues.
    write_new(&certificate, &format!("{}\n{}\n", pem.trim_end(), old.trim_end()), false)?;
    write_new(&key, &issuer.key().serialize_pem(), true)?;
    Ok((issuer, true))
}

/// Believes the newest authority only.
fn retire(args: &CertsArgs) -> anyhow::Result<(Issuer<'static, KeyPair>, bool)> {
    let certificate = args.dir.join("ca.pem");
    let all = read(&certificate)?;
    let all = certificates(&all);
    anyhow::ensure!(
        all.len() > 1,
        "{} holds one authority: there is none to retire",
        certificate.display()
    );
    write_new(&certificate, all[0], false)?;
    authority(args)
}

/// The certificates in a PEM text.
fn certificates(pem: &str) -> Vec<&str> {
    const END: &str = "-----END CERTIFICATE-----\n";
    pem.split_inclusive(END).map(str::trim_start).filter(|block| block.ends_with(END)).collect()
}

fn issue(
    args: &CertsArgs,
    member: MemberId,
    issuer: &Issuer<'_, KeyPair>,
) -> anyhow::Result<MemberDocument> {
    let certificate = args.dir.join(format!("{member}.pem"));
    let key = args.dir.join(format!("{member}.key"));
    let made = args.renew || !certificate.exists();
    if made {
        let name = format!("{member}.{}.mandate", args.group);
        let mut params = CertificateParams::new(vec![name.clone()])?;
        params.distinguished_name = named(&name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, args.days);
        let pair = KeyPair::generate()?;
        let signed = params.signed_by(&pair, issuer)?;
        write_new(&key, &pair.serialize_pem(), true)?;
        write_new(&certificate, &signed.pem(), false)?;
    }
    Ok(MemberDocument { id: member.to_string(), certificate, key, made })
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// From an hour ago, since clocks differ, for so many days.
fn valid_for(params: &mut CertificateParams, days: u32) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::HOUR;
    params.not_after = now + Duration::days(days.into());
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))
}

/// Writes a file beside and renames it, so that nobody ever reads half a key. What was left beside by an
/// earlier attempt is not written into: it may be readable by others.
fn write_new(path: &Path, pem: &str, secret: bool) -> anyhow::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let _ = fs::remove_file(&new);
    let mode = if secret { 0o600 } else { 0o644 };
    let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&new);
    file.and_then(|mut file| file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("could not write {}", path.display()))
}

fn text(document: &Document, made_authority: bool, args: &CertsArgs) -> String {
    let mut text = match made_authority {
        true => format!("A new authority for the group {}:\n", args.group),
        false => format!("The authority of the group {}:\n", args.group),
    };
    text += &format!("  {}\n", document.authority.display());
    for member in &document.members {
        let made = if member.made { "made" } else { "was there" };
        text += &format!("  {:<5} {}  ({made})\n", member.id, member.certificate.display());
    }
    text += match args.rotation {
        RotationArgs { rotate_ca: true, .. } => {
            "\nThe old authority is believed, too. Next: give all members the new ca.pem; then --renew for all of \
             them;\nthen --retire-ca.\n"
        }
        RotationArgs { retire_ca: true, .. } => {
            "\nThe old authority is not in ca.pem any more: give it to all members.\n"
        }
        RotationArgs { .. } => "",
    };
    text + "\nGive each member ca.pem and its own two files. Keep ca.key to yourself: anyone who has it can\n\
            make members."
}
