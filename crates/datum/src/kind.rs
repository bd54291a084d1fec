//! The names ReQL gives to kinds of datum.

/// The kind of a datum; its order is the order of the kinds in ReQL's total order.
///
/// Source: docs/reql-spec.md section 3, "Total order": kinds compare by name, with MINVAL
/// before and MAXVAL after everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The bound below every value.
    MinVal,
    /// A sequence of datums.
    Array,
    /// `true` or `false`.
    Bool,
    /// The absent value.
    Null,
    /// An IEEE double, never NaN or infinite.
    Number,
    /// A map from unique string keys to datums.
    Object,
    /// Bytes.
    Binary,
    /// A WGS84 shape, kept as its GeoJSON-like object.
    Geometry,
    /// An instant with a zone offset.
    Time,
    /// UTF-8 text.
    String,
    /// The bound above every value.
    MaxVal,
}

impl Kind {
    /// The name drivers see in `type_of` and in error messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::MinVal => "MINVAL",
            Kind::Array => "ARRAY",
            Kind::Bool => "BOOL",
            Kind::Null => "NULL",
            Kind::Number => "NUMBER",
            Kind::Object => "OBJECT",
            Kind::Binary => "PTYPE<BINARY>",
            Kind::Geometry => "PTYPE<GEOMETRY>",
            Kind::Time => "PTYPE<TIME>",
            Kind::String => "STRING",
            Kind::MaxVal => "MAXVAL",
        }
    }
}
