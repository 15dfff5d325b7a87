//! Names of members in certificates: `p5.GROUP.mandate`.
//!
//! Read with `rustls-webpki`, which also verifies the chain: two parsers could disagree about the same
//! bytes. Only exact names count. A wildcard would let its holder be every member.

use mandate_proto::identity::MemberId;
use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::handle::LinkError;
use super::identity::Identity;
use super::limits::{MAX_FOREIGN_TEXT, MAX_GROUP_BYTES};

/// The name that a member's certificate carries.
pub(crate) fn of_member(member: MemberId, group: &str) -> String {
    format!("{member}.{group}.mandate")
}

/// Whether a group can be called that: a label of a DNS name in lower case.
pub(crate) fn is_group(group: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_GROUP_BYTES).contains(&group.len())
        && group.bytes().all(allowed)
        && !group.starts_with('-')
        && !group.ends_with('-')
}

/// Why a certificate does not say which member of the group it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unnamed {
    #[error("its certificate cannot be read; issue a new one")]
    Unreadable,
    #[error(
        "its certificate names no member of the group {group} (it names {found}); issue one for pN.{group}.mandate"
    )]
    NoMember { group: String, found: String },
    #[error(
        "its certificate names several members of the group {group} ({found}); issue one for each member"
    )]
    Several { group: String, found: String },
}

/// The one member of the group that a certificate names.
pub(crate) fn member_of(
    certificate: &CertificateDer<'_>,
    group: &str,
) -> Result<MemberId, Unnamed> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|_| Unnamed::Unreadable)?;
    let names: Vec<&str> = parsed.valid_dns_names().collect();
    let mut members: Vec<MemberId> =
        names.iter().filter_map(|name| member_in(name, group)).collect();
    members.sort_unstable();
    members.dedup();
    match members[..] {
        [member] => Ok(member),
        [] => Err(Unnamed::NoMember { group: group.to_owned(), found: listed(&names) }),
        _ => Err(Unnamed::Several { group: group.to_owned(), found: listed(&names) }),
    }
}

/// Whether a certificate is of this group, whomever it names in it.
pub(crate) fn is_of_group(certificate: &CertificateDer<'_>, group: &str) -> bool {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return false };
    let of_group = |name: &str| {
        name.split_once('.').is_some_and(|(label, rest)| {
            label != "*" && rest.eq_ignore_ascii_case(&format!("{group}.mandate"))
        })
    };
    parsed.valid_dns_names().any(of_group)
}

/// Whether a member's own certificate names it.
pub(crate) fn check_own(me: MemberId, group: &str, identity: &Identity) -> Result<(), LinkError> {
    let not_mine = |reason| LinkError::NotMyCertificate { expected: of_member(me, group), reason };
    let leaf = identity.chain.first().ok_or_else(|| not_mine("there is none".to_owned()))?;
    match member_of(leaf, group) {
        Ok(member) if member == me => Ok(()),
        Ok(member) => Err(not_mine(format!("it names {member}; use the certificate of {me}"))),
        Err(unnamed) => Err(not_mine(unnamed.to_string())),
    }
}

/// The member at the other end of a connection.
pub(crate) fn of_peer(connection: &quinn::Connection, group: &str) -> Result<MemberId, Unnamed> {
    let identity = connection.peer_identity().ok_or(Unnamed::Unreadable)?;
    let chain =
        identity.downcast::<Vec<CertificateDer<'static>>>().map_err(|_| Unnamed::Unreadable)?;
    member_of(chain.first().ok_or(Unnamed::Unreadable)?, group)
}

/// The member in one name. Exactly the text that [`of_member`] writes, lest `p05` and `p5` be the same.
fn member_in(name: &str, group: &str) -> Option<MemberId> {
    let (label, _) = name.split_once('.')?;
    let member = label.to_ascii_lowercase().parse().ok()?;
    name.eq_ignore_ascii_case(&of_member(member, group)).then_some(member)
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "nobody".to_owned(),
        names => names.join(", ").chars().take(MAX_FOREIGN_TEXT / 2).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_from_its_exact_name_only() {
        let five = Some(MemberId::new(5));
        assert_eq!(member_in("p5.shop.mandate", "shop"), five);
        assert_eq!(member_in("P5.Shop.Mandate", "shop"), five);
        for other in ["p5.shop.mandate.", "p05.shop.mandate", "5.shop.mandate", "p5.other.mandate"]
        {
            assert_eq!(member_in(other, "shop"), None, "{other}");
        }
        for other in ["*.shop.mandate", "p5.shop", "p5", "p-5.shop.mandate", "p+5.shop.mandate", ""]
        {
            assert_eq!(member_in(other, "shop"), None, "{other}");
        }
    }

    #[test]
    fn a_group_is_called_like_a_host() {
        assert!(is_group("shop") && is_group("shop-2") && is_group(&"a".repeat(63)));
        for wrong in ["", "Shop", "shop.eu", "-shop", "shop-", "sh op", "shöp", &"a".repeat(64)] {
            assert!(!is_group(wrong), "{wrong}");
        }
    }
}
