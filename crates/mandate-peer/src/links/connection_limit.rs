//! Places for newcomers who have not yet said who they are: so many in all, and so many for one host.
//!
//! Without the second bound a single host could take all places and keep members out. A host is an IPv4
//! address, or the 64 bits of an IPv6 address that a provider hands to one customer: the other 64 are the
//! customer's to choose.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::limits::{MAX_NEWCOMERS, MAX_NEWCOMERS_PER_HOST};

/// Who has how many.
#[derive(Clone, Default)]
pub(crate) struct ConnectionLimit(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// A place; free again when it is dropped.
pub(crate) struct Place {
    host: IpAddr,
    places: ConnectionLimit,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error(
        "{MAX_NEWCOMERS_PER_HOST} connections from there have not yet said who they are; further ones are refused \
         meanwhile. If no member runs there, keep that host from this port"
    )]
    Host,
    #[error(
        "{MAX_NEWCOMERS} connections have not yet said who they are; further ones are refused meanwhile. If it goes \
         on, let only members reach this port"
    )]
    All,
}

impl ConnectionLimit {
    /// Takes a place.
    pub(crate) fn take(&self, from: IpAddr) -> Result<Place, Full> {
        let host = host(from);
        let mut taken = self.taken();
        if taken.get(&host).is_some_and(|taken| *taken >= MAX_NEWCOMERS_PER_HOST) {
            return Err(Full::Host);
        }
        if taken.values().sum::<usize>() >= MAX_NEWCOMERS {
            return Err(Full::All);
        }
        *taken.entry(host).or_default() += 1;
        Ok(Place { host, places: self.clone() })
    }

    /// How many are taken.
    pub(crate) fn count(&self) -> usize {
        self.taken().values().sum()
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.host);
            }
        }
    }
}

/// The host of an address, as one that can be reported.
pub(crate) fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_host_gets_its_share_and_leaves_the_rest_to_others() {
        let places = ConnectionLimit::default();
        let taken: Vec<_> =
            (0..1000).map_while(|_| places.take(address("10.0.0.1")).ok()).collect();
        assert_eq!(taken.len(), MAX_NEWCOMERS_PER_HOST);
        assert_eq!(places.take(address("::ffff:10.0.0.1")).err(), Some(Full::Host));
        let other = places.take(address("10.0.0.2"));
        assert!(other.is_ok());
        drop((taken, other));
        assert_eq!(places.count(), 0);
        assert!(places.taken().is_empty(), "nothing is remembered of who was there");
    }

    #[test]
    fn whoever_has_a_whole_network_of_ipv6_is_one_host() {
        let places = ConnectionLimit::default();
        let address =
            |low: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low)));
        let taken: Vec<_> = (0..1000).filter_map(|low| places.take(address(low)).ok()).collect();
        assert_eq!(taken.len(), MAX_NEWCOMERS_PER_HOST);
    }

    #[test]
    fn there_is_an_end_also_for_many_hosts() {
        let places = ConnectionLimit::default();
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(number));
        let taken: Vec<_> =
            (1..10_000).filter_map(|host| places.take(address(host)).ok()).collect();
        assert_eq!(taken.len(), MAX_NEWCOMERS);
        assert_eq!(places.take(address(20_000)).err(), Some(Full::All));
    }
}
