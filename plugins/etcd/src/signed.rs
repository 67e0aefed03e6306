//! A certificate with the signature of a CA. rcgen writes it; but names as it knows them, so that some CA's would be written in another way than
//! the CA has its own, and whoever verifies compares them byte for byte. So the CA's name is put in as it stands, and what then is there is signed.

use pkcs8::der::{
    self, Decode, Encode,
    asn1::{AnyRef, BitStringRef},
};
use rcgen::{
    CertificateParams, DistinguishedName, Issuer, KeyIdMethod, KeyPair, PublicKeyData,
    SignatureAlgorithm, SigningKey,
};
use rustls_pki_types::CertificateDer;

use crate::{AuthorityError, authority::Authority};

/// Where the issuer's name is in what is signed: after version, serial number and algorithm.
const ISSUER: usize = 3;

impl Authority {
    /// A certificate for `key` that says what `params` do.
    pub(crate) fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut own = CertificateParams::default();
        own.distinguished_name = DistinguishedName::new();
        if let Some(identifier) = &self.key_identifier {
            own.key_identifier_method = KeyIdMethod::PreSpecified(identifier.clone());
        }
        let pair = self.signer.pair();
        let unsigned = params.signed_by(key, &Issuer::from_params(&own, Unsigned(pair)));
        let unsigned = unsigned.map_err(|_| AuthorityError::Sign)?;
        let sign = |written: &[u8]| pair.sign(written);
        signed(unsigned.der(), &self.name, sign)
    }
}

/// The certificate with another issuer's name, signed anew.
fn signed(
    unsigned: &[u8],
    issuer: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, rcgen::Error>,
) -> Result<CertificateDer<'static>, AuthorityError> {
    let issuer = AnyRef::from_der(issuer).map_err(|_| AuthorityError::Name)?;
    let (written, algorithm) = renamed(unsigned, issuer).map_err(|_| AuthorityError::Sign)?;
    let signature = sign(&written).map_err(|_| AuthorityError::Sign)?;
    let whole = whole(&written, algorithm, &signature);
    whole
        .map(CertificateDer::from)
        .map_err(|_| AuthorityError::Sign)
}

/// What is to be signed, and the algorithm.
fn renamed<'a>(unsigned: &'a [u8], issuer: AnyRef<'_>) -> der::Result<(Vec<u8>, AnyRef<'a>)> {
    let parts = Vec::<AnyRef<'_>>::from_der(unsigned)?;
    let [written, algorithm, _] = parts[..] else {
        return Err(der::ErrorKind::Failed.into());
    };
    let mut fields = written.decode_as::<Vec<AnyRef<'_>>>()?;
    let field = fields.get_mut(ISSUER).ok_or(der::ErrorKind::Failed)?;
    *field = issuer;
    Ok((fields.to_der()?, algorithm))
}

fn whole(written: &[u8], algorithm: AnyRef<'_>, signature: &[u8]) -> der::Result<Vec<u8>> {
    let signature = BitStringRef::from_bytes(signature)?.to_der()?;
    let (written, signature) = (AnyRef::from_der(written)?, AnyRef::from_der(&signature)?);
    vec![written, algorithm, signature].to_der()
}

/// A CA's key that leaves the place of its signature empty.
struct Unsigned<'a>(&'a KeyPair);

impl PublicKeyData for Unsigned<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        PublicKeyData::algorithm(self.0)
    }
}

impl SigningKey for Unsigned<'_> {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(Vec::new())
    }
}
