//! Which addresses may be dialled for a cluster (rule 17 of the design). What a tenant names may resolve to the operator's own
//! machines: a loopback address is the controller's own, a link-local one has the cloud's metadata service behind it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Which addresses may be dialled. It is asked about the resolved address at the moment of dialling, and that address is dialled: a
/// name that resolves to another one a moment later changes nothing. Cheap to clone.
///
/// Of several networks that hold an address the narrowest decides, and of equal ones the denied one. An IPv6 address that stands for
/// an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) is also asked about as that one.
///
/// ```
/// use clustercache::AddressPolicy;
///
/// let policy = AddressPolicy::tenant()
///     .deny("10.0.0.0/8".parse()?) // the operator's own network
///     .allow("10.20.0.0/16".parse()?); // but for this part of it
/// assert!(policy.check("10.20.0.1".parse()?).is_ok());
/// assert!(policy.check("10.0.0.1".parse()?).is_err());
/// assert!(policy.check("169.254.169.254".parse()?).is_err());
/// assert!(policy.check("::ffff:127.0.0.1".parse()?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AddressPolicy {
    /// `None`: any address but for what the operator says.
    reserved: bool,
    nets: Arc<[(IpNet, Word)]>,
}

/// What the operator says of a network. A denial counts more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Allow,
    Deny,
}

impl AddressPolicy {
    /// Any address: for clusters that the operator names. It is what an access has if it was given no other.
    pub fn any() -> Self {
        Self {
            reserved: false,
            nets: Arc::default(),
        }
    }

    /// For clusters that a tenant names: loopback, link-local, unspecified, broadcast and multicast addresses are refused, and those at
    /// which clouds serve metadata outside the link-local range.
    pub fn tenant() -> Self {
        Self {
            reserved: true,
            nets: Arc::default(),
        }
    }

    /// Allows the addresses of `net`, also where they are reserved.
    #[must_use]
    pub fn allow(self, net: IpNet) -> Self {
        self.with(net, Word::Allow)
    }

    /// Refuses the addresses of `net`.
    #[must_use]
    pub fn deny(self, net: IpNet) -> Self {
        self.with(net, Word::Deny)
    }

    /// Whether `address` may be dialled.
    pub fn check(&self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        let forbidden = |reason| Err(ForbiddenAddress { address, reason });
        // A mapped address is dialled as the IPv4 address that it maps.
        let canonical = address.to_canonical();
        let word = self.word(canonical);
        if word == Some(Word::Deny) {
            return forbidden(Forbidden::Denied);
        }
        if self.reserved
            && word.is_none()
            && let Some(reason) = reserved(canonical)
        {
            return forbidden(reason);
        }
        // Who allows a translator's network does not allow all that is behind it.
        let translated = match canonical {
            IpAddr::V6(address) => translated(address),
            IpAddr::V4(_) => None,
        };
        match translated.map(|inner| self.check(inner.into())) {
            Some(Err(inner)) => forbidden(inner.reason),
            _ => Ok(()),
        }
    }

    fn with(self, net: IpNet, word: Word) -> Self {
        let added = (canonical(net), word);
        Self {
            nets: self.nets.iter().copied().chain([added]).collect(),
            ..self
        }
    }

    /// What the narrowest network that holds `address` says.
    fn word(&self, address: IpAddr) -> Option<Word> {
        self.nets
            .iter()
            .filter(|(net, _)| net.contains(&address))
            .map(|(net, word)| (net.prefix_len(), *word))
            .max()
            .map(|(_, word)| word)
    }
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self::any()
    }
}

impl fmt::Debug for AddressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.reserved { "tenant" } else { "any" })?;
        self.nets.iter().try_for_each(|(net, word)| match word {
            Word::Allow => write!(f, ", allowed {net}"),
            Word::Deny => write!(f, ", denied {net}"),
        })
    }
}

/// An address that may not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address {address} may not be dialled: {reason}; the operator can allow it by the address policy"
)]
pub struct ForbiddenAddress {
    /// The address.
    pub address: IpAddr,
    /// Why not.
    pub reason: Forbidden,
}

/// Why an address may not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forbidden {
    /// The operator's list denies it.
    Denied,
    /// It is the machine's own.
    Loopback,
    /// It is on the machine's own link, where clouds serve metadata and credentials.
    LinkLocal,
    /// It is no address of anybody, and most systems take it for their own.
    Unspecified,
    /// It is many machines.
    Multicast,
    /// A cloud serves metadata and credentials there.
    Metadata,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "the operator denies it",
            Self::Loopback => "it is a loopback address",
            Self::LinkLocal => "it is a link-local address",
            Self::Unspecified => "it is an unspecified address",
            Self::Multicast => "it is a multicast or broadcast address",
            Self::Metadata => "it is a cloud's metadata service",
        })
    }
}

/// Networks by their first address and prefix length.
const RESERVED_V4: &[([u8; 4], u8, Forbidden)] = &[
    // "This host on this network": Linux takes all of it for its own.
    ([0, 0, 0, 0], 8, Forbidden::Unspecified),
    ([127, 0, 0, 0], 8, Forbidden::Loopback),
    ([169, 254, 0, 0], 16, Forbidden::LinkLocal),
    ([224, 0, 0, 0], 4, Forbidden::Multicast),
    ([255, 255, 255, 255], 32, Forbidden::Multicast),
    // Azure and Alibaba.
    ([168, 63, 129, 16], 32, Forbidden::Metadata),
    ([100, 100, 100, 200], 32, Forbidden::Metadata),
];

const RESERVED_V6: &[([u16; 8], u8, Forbidden)] = &[
    ([0; 8], 128, Forbidden::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Forbidden::Loopback),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Forbidden::LinkLocal),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Forbidden::Multicast),
    // AWS, Google, Oracle, Scaleway.
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32, Forbidden::Metadata),
    (
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
        128,
        Forbidden::Metadata,
    ),
    (
        [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
        128,
        Forbidden::Metadata,
    ),
    (
        [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
        128,
        Forbidden::Metadata,
    ),
];

fn reserved(address: IpAddr) -> Option<Forbidden> {
    match address {
        IpAddr::V4(address) => RESERVED_V4.iter().find_map(|&(first, length, reason)| {
            let net = Ipv4Net::new_assert(first.into(), length);
            net.contains(&address).then_some(reason)
        }),
        IpAddr::V6(address) => RESERVED_V6.iter().find_map(|&(first, length, reason)| {
            let net = Ipv6Net::new_assert(first.into(), length);
            net.contains(&address).then_some(reason)
        }),
    }
}

/// The IPv4 address that a translator or a tunnel reaches behind an IPv6 one.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    let last = Ipv4Addr::new(a, b, c, d);
    match address.segments() {
        // IPv4-compatible, deprecated by RFC 4291; `::` and `::1` are themselves.
        [0, 0, 0, 0, 0, 0, ..] if u32::from(last) > 1 => Some(last),
        // NAT64: well known (RFC 6052), local (RFC 8215); translatable (RFC 2765).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            Some(last)
        }
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        // Teredo (RFC 4380): the client's address, inverted.
        [0x2001, 0, ..] => Some(Ipv4Addr::from(!u32::from(last))),
        _ => None,
    }
}

/// A network of mapped addresses is one of IPv4 addresses, as which they are asked about.
fn canonical(net: IpNet) -> IpNet {
    match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new_assert(v4, v6.prefix_len() - 96).into(),
            None => net,
        },
        _ => net,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(policy: &AddressPolicy, address: &str) -> Option<Forbidden> {
        let verdict = policy.check(address.parse().unwrap());
        verdict.err().map(|forbidden| forbidden.reason)
    }

    #[test]
    fn a_tenant_reaches_no_reserved_address_in_whatever_form() {
        use Forbidden::{LinkLocal, Loopback, Metadata, Multicast, Unspecified};
        for (address, reason) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("::127.0.0.1", Loopback),
            ("64:ff9b::127.0.0.1", Loopback),
            ("64:ff9b:1::127.0.0.1", Loopback),
            ("::ffff:0:127.0.0.1", Loopback),
            ("2002:7f00:1::", Loopback),
            ("2001:0:1::80ff:fffe", Loopback),
            ("169.254.169.254", LinkLocal),
            ("::ffff:a9fe:a9fe", LinkLocal),
            ("64:ff9b::a9fe:a9fe", LinkLocal),
            ("2002:a9fe:a9fe::1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("::", Unspecified),
            ("::ffff:0.0.0.0", Unspecified),
            ("224.0.0.1", Multicast),
            ("255.255.255.255", Multicast),
            ("ff02::1", Multicast),
            ("168.63.129.16", Metadata),
            ("fd00:ec2::254", Metadata),
        ] {
            assert_eq!(
                verdict(&AddressPolicy::tenant(), address),
                Some(reason),
                "{address}"
            );
            assert_eq!(verdict(&AddressPolicy::any(), address), None, "{address}");
        }
    }

    #[test]
    fn a_tenant_reaches_private_and_public_addresses() {
        for address in [
            "10.0.0.1",
            "192.168.0.1",
            "8.8.8.8",
            "fd00::1",
            "2001:db8::1",
            "64:ff9b::808:808",
        ] {
            assert_eq!(
                verdict(&AddressPolicy::tenant(), address),
                None,
                "{address}"
            );
        }
    }

    #[test]
    fn the_narrowest_network_decides_and_of_equals_the_denied_one() {
        let net = |text: &str| text.parse().unwrap();
        let policy = AddressPolicy::tenant()
            .allow(net("127.0.0.0/8"))
            .deny(net("127.1.0.0/16"))
            .deny(net("10.0.0.0/8"))
            .allow(net("10.0.0.0/8"));
        assert_eq!(verdict(&policy, "127.0.0.1"), None);
        assert_eq!(verdict(&policy, "127.1.0.1"), Some(Forbidden::Denied));
        assert_eq!(verdict(&policy, "10.0.0.1"), Some(Forbidden::Denied));
    }

    #[test]
    fn an_allowed_translator_does_not_allow_what_is_behind_it() {
        let net = |text: &str| text.parse().unwrap();
        let any = AddressPolicy::any()
            .deny(net("10.0.0.0/8"))
            .allow(net("64:ff9b::/96"));
        assert_eq!(verdict(&any, "64:ff9b::10.0.0.1"), Some(Forbidden::Denied));
        let tenant = AddressPolicy::tenant()
            .deny(net("::/0"))
            .allow(net("2000::/3"));
        assert_eq!(verdict(&tenant, "2002:7f00:1::"), Some(Forbidden::Loopback));
        assert_eq!(verdict(&tenant, "2001:db8::1"), None);
    }

    #[test]
    fn a_list_holds_for_every_form_of_an_address() {
        let net = |text: &str| text.parse().unwrap();
        let denied = AddressPolicy::any().deny(net("10.0.0.0/8"));
        for address in ["::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"] {
            assert_eq!(
                verdict(&denied, address),
                Some(Forbidden::Denied),
                "{address}"
            );
        }
        let mapped = AddressPolicy::any().deny(net("::ffff:10.0.0.0/104"));
        assert_eq!(verdict(&mapped, "10.1.0.1"), Some(Forbidden::Denied));
    }
}
