//! Describes TLS errors, of either side, for the log.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// The reason why TLS ended a connection between nodes.
pub(in crate::real::network) fn describe(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the other side does not use TLS, but this side does".to_owned()
        }
        Error::NoCertificatesPresented => "the other side presented no certificate".to_owned(),
        Error::InvalidCertificate(fault) => of_certificate(fault),
        Error::AlertReceived(alert) => of_alert(*alert),
        error => error.to_string(),
    }
}

fn of_certificate(fault: &CertificateError) -> String {
    let what = match fault {
        CertificateError::UnknownIssuer => {
            "is neither in --cluster-tls-ca nor signed by one that is".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: compare the clocks".to_owned()
        }
        fault => format!("cannot be used: {fault}"),
    };
    format!("the certificate of the other side {what}")
}

fn of_alert(alert: AlertDescription) -> String {
    let what = match alert {
        AlertDescription::UnknownCA => {
            "does not trust the certificate of this one: it is neither in the --cluster-tls-ca there nor signed by one that is"
        }
        AlertDescription::CertificateRequired => "requires a certificate and got none",
        AlertDescription::CertificateExpired => {
            "refuses the certificate of this one: it has expired, or is not valid yet"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown => "refuses the certificate of this one; its log says why",
        alert => return format!("the other side ended the session: {alert:?}"),
    };
    format!("the other side {what}")
}
