//! The table of terms: one row for every term of the language, whether implemented here or not.
//!
//! A row has the term's name on the wire, the number of its arguments, its optional arguments and its nature. The
//! compiler of the wire form reads it before anything runs; the analysis of determinism and the choice of a server
//! read the nature.

/// The resources that a term may access, which determine where it runs and where it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Uses only its arguments.
    Closed,
    /// Constant within one query (`now`).
    Constant,
    /// Geometry: deterministic on one server, not across servers.
    Shape,
    /// Draws a random number.
    Random,
    /// Reads tables, the network or the current state of the cluster.
    Read,
    /// Changes rows, tables or the cluster, or counts as a write in the nesting rule.
    Write,
}

/// How many arguments a term takes, including the value before the dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity {
    /// The minimum number of arguments.
    pub min: usize,
    /// The maximum number of arguments; `None` if unlimited.
    pub max: Option<usize>,
}

/// One row of the table of terms.
#[derive(Debug)]
pub struct Signature {
    /// The term.
    pub op: Op,
    /// Its number on the wire.
    pub id: u32,
    /// Its name in the protocol.
    pub name: &'static str,
    /// How many arguments it takes.
    pub arity: Arity,
    /// The optional arguments it accepts, in any order.
    pub optargs: &'static [&'static str],
    /// The resources it may access.
    pub nature: Nature,
}

impl Signature {
    /// Whether the term is open: needs more than its arguments, so that it cannot run inside a shard.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.nature, Nature::Read | Nature::Write)
    }

    /// Whether the term may not be nested in stream operations.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.nature == Nature::Write
    }
}

impl Arity {
    /// Whether `count` arguments are accepted.
    #[must_use]
    pub fn accepts(self, count: usize) -> bool {
        count >= self.min && self.max.is_none_or(|max| count <= max)
    }

    /// The text of the arity error: `Expected 2 arguments but found 3.`
    #[must_use]
    pub fn mismatch(self, found: usize) -> String {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let expected = match self.max {
            Some(max) if max == self.min => format!("{max} argument{}", plural(max)),
            Some(max) => format!("between {} and {max} arguments", self.min),
            None => format!("{} or more arguments", self.min),
        };
        format!("Expected {expected} but found {found}.")
    }
}

/// The row of `op`.
#[must_use]
pub fn of(op: Op) -> &'static Signature {
    &TABLE[op as usize]
}

/// The term with this number on the wire.
#[must_use]
pub fn by_id(id: u32) -> Option<Op> {
    const BY_ID: [Option<Op>; 256] = index_by_id();
    BY_ID.get(id as usize).copied().flatten()
}

/// Every row, in the order of [`Op`].
#[must_use]
pub fn all() -> &'static [Signature] {
    TABLE
}

const fn index_by_id() -> [Option<Op>; 256] {
    let mut by_id = [None; 256];
    let mut i = 0;
    while i < TABLE.len() {
        by_id[TABLE[i].id as usize] = Some(TABLE[i].op);
        i += 1;
    }
    by_id
}

impl Op {
    /// The name in the protocol, such as `GET_FIELD`.
    #[must_use]
    pub fn name(self) -> &'static str {
        of(self).name
    }

    /// Whether the term is open.
    #[must_use]
    pub fn is_open(self) -> bool {
        of(self).is_open()
    }
}

macro_rules! terms {
    ($($op:ident $id:literal $name:literal $min:literal .. $($max:literal)? [$($optarg:literal)*] $nature:ident)*) => {
        /// A term of the language.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op { $($op),* }

        const TABLE: &[Signature] = &[$(Signature {
            op: Op::$op,
            id: $id,
            name: $name,
            arity: Arity { min: $min, max: terms!(@max $($max)?) },
            optargs: &[$($optarg),*],
            nature: Nature::$nature,
        }),*];
    };
    (@max) => { None };
    (@max $max:literal) => { Some($max) };
}

// name, wire number, wire name, minimum..maximum arguments, optional arguments, nature
terms! {
    // Values, variables, control.
    Datum 1 "DATUM" 1..1 [] Closed
    MakeArray 2 "MAKE_ARRAY" 0.. [] Closed
    MakeObj 3 "MAKE_OBJ" 0..0 [] Closed
    Var 10 "VAR" 1..1 [] Closed
    ImplicitVar 13 "IMPLICIT_VAR" 0..0 [] Closed
    Func 69 "FUNC" 2..2 [] Closed
    Funcall 64 "FUNCALL" 1.. [] Closed
    Branch 65 "BRANCH" 3.. [] Closed
    Or 66 "OR" 0.. [] Closed
    And 67 "AND" 0.. [] Closed
    Not 23 "NOT" 1..1 [] Closed
    Error 12 "ERROR" 0..1 [] Closed
    Default 92 "DEFAULT" 2..2 [] Closed
    Args 154 "ARGS" 1..1 [] Closed
    Binary 155 "BINARY" 1..1 [] Closed
    Uuid 169 "UUID" 0..1 [] Random
    Javascript 11 "JAVASCRIPT" 1..1 ["timeout"] Read
    Http 153 "HTTP" 1..1 ["data" "timeout" "method" "params" "header" "attempts" "redirects" "verify" "page" "page_limit" "auth" "result_format"] Read
    Info 79 "INFO" 1..1 [] Closed
    TypeOf 52 "TYPE_OF" 1..1 [] Closed
    CoerceTo 51 "COERCE_TO" 2..2 [] Closed
    MinVal 180 "MINVAL" 0..0 [] Closed
    MaxVal 181 "MAXVAL" 0..0 [] Closed
    Json 98 "JSON" 1..1 [] Closed
    ToJsonString 172 "TO_JSON_STRING" 1..1 [] Closed
    // Comparison and arithmetic.
    Eq 17 "EQ" 2.. [] Closed
    Ne 18 "NE" 2.. [] Closed
    Lt 19 "LT" 2.. [] Closed
    Le 20 "LE" 2.. [] Closed
    Gt 21 "GT" 2.. [] Closed
    Ge 22 "GE" 2.. [] Closed
    Add 24 "ADD" 1.. [] Closed
    Sub 25 "SUB" 1.. [] Closed
    Mul 26 "MUL" 1.. [] Closed
    Div 27 "DIV" 1.. [] Closed
    Mod 28 "MOD" 2..2 [] Closed
    Floor 183 "FLOOR" 1..1 [] Closed
    Ceil 184 "CEIL" 1..1 [] Closed
    Round 185 "ROUND" 1..1 [] Closed
    BitAnd 191 "BIT_AND" 1.. [] Closed
    BitOr 192 "BIT_OR" 1.. [] Closed
    BitXor 193 "BIT_XOR" 1.. [] Closed
    BitNot 194 "BIT_NOT" 1..1 [] Closed
    BitSal 195 "BIT_SAL" 2..2 [] Closed
    BitSar 196 "BIT_SAR" 2..2 [] Closed
    Random 151 "RANDOM" 0..2 ["float"] Random
    // Strings.
    Match 97 "MATCH" 2..2 [] Closed
    Split 149 "SPLIT" 1..3 [] Closed
    Upcase 141 "UPCASE" 1..1 [] Closed
    Downcase 142 "DOWNCASE" 1..1 [] Closed
    Format 197 "FORMAT" 2..2 [] Closed
    // Arrays and objects.
    Append 29 "APPEND" 2..2 [] Closed
    Prepend 80 "PREPEND" 2..2 [] Closed
    InsertAt 82 "INSERT_AT" 3..3 [] Closed
    DeleteAt 83 "DELETE_AT" 2..3 [] Closed
    ChangeAt 84 "CHANGE_AT" 3..3 [] Closed
    SpliceAt 85 "SPLICE_AT" 3..3 [] Closed
    Difference 95 "DIFFERENCE" 2..2 [] Closed
    SetInsert 88 "SET_INSERT" 2..2 [] Closed
    SetIntersection 89 "SET_INTERSECTION" 2..2 [] Closed
    SetUnion 90 "SET_UNION" 2..2 [] Closed
    SetDifference 91 "SET_DIFFERENCE" 2..2 [] Closed
    Contains 93 "CONTAINS" 1.. [] Closed
    OffsetsOf 87 "OFFSETS_OF" 2..2 [] Closed
    Keys 94 "KEYS" 1..1 [] Closed
    Values 186 "VALUES" 1..1 [] Closed
    Object 143 "OBJECT" 0.. [] Closed
    GetField 31 "GET_FIELD" 2..2 [] Closed
    Bracket 170 "BRACKET" 2..2 [] Closed
    HasFields 32 "HAS_FIELDS" 1.. [] Closed
    Pluck 33 "PLUCK" 1.. [] Closed
    Without 34 "WITHOUT" 1.. [] Closed
    WithFields 96 "WITH_FIELDS" 1.. [] Closed
    Merge 35 "MERGE" 1.. [] Closed
    Literal 137 "LITERAL" 0..1 [] Closed
    // Sequences.
    Map 38 "MAP" 2.. [] Closed
    ConcatMap 40 "CONCAT_MAP" 2..2 [] Closed
    Filter 39 "FILTER" 2..2 ["default"] Closed
    Reduce 37 "REDUCE" 2..2 ["base"] Closed
    Fold 187 "FOLD" 3..3 ["emit" "final_emit"] Closed
    Count 43 "COUNT" 1..2 [] Closed
    Sum 145 "SUM" 1..2 ["index"] Closed
    Avg 146 "AVG" 1..2 ["index"] Closed
    Min 147 "MIN" 1..2 ["index"] Closed
    Max 148 "MAX" 1..2 ["index"] Closed
    OrderBy 41 "ORDER_BY" 1.. ["index"] Closed
    Asc 73 "ASC" 1..1 [] Closed
    Desc 74 "DESC" 1..1 [] Closed
    Distinct 42 "DISTINCT" 1..1 ["index"] Closed
    Limit 71 "LIMIT" 2..2 [] Closed
    Skip 70 "SKIP" 2..2 [] Closed
    Slice 30 "SLICE" 2..3 ["left_bound" "right_bound"] Closed
    Nth 45 "NTH" 2..2 [] Closed
    IsEmpty 86 "IS_EMPTY" 1..1 [] Closed
    Union 44 "UNION" 0.. ["interleave"] Closed
    Sample 81 "SAMPLE" 2..2 [] Random
    Range 173 "RANGE" 0..2 [] Closed
    ForEach 68 "FOR_EACH" 2..2 [] Read
    Group 144 "GROUP" 1.. ["index" "multi"] Closed
    Ungroup 150 "UNGROUP" 1..1 [] Closed
    InnerJoin 48 "INNER_JOIN" 3..3 [] Closed
    OuterJoin 49 "OUTER_JOIN" 3..3 [] Closed
    EqJoin 50 "EQ_JOIN" 3..3 ["index" "ordered"] Read
    Zip 72 "ZIP" 1..1 [] Closed
    Changes 152 "CHANGES" 1..1 ["squash" "changefeed_queue_size" "include_initial" "include_offsets" "include_states" "include_types" "include_resume_token" "resume_after"] Read
    // Tables.
    Db 14 "DB" 1..1 [] Read
    Table 15 "TABLE" 1..2 ["read_mode" "identifier_format" "use_outdated"] Read
    Get 16 "GET" 2..2 [] Read
    GetAll 78 "GET_ALL" 1.. ["index"] Read
    Between 182 "BETWEEN" 3..3 ["index" "left_bound" "right_bound"] Read
    BetweenDeprecated 36 "BETWEEN_DEPRECATED" 3..3 ["index" "left_bound" "right_bound"] Read
    Insert 56 "INSERT" 2..2 ["conflict" "durability" "return_changes" "return_vals" "ignore_write_hook"] Write
    Update 53 "UPDATE" 2..2 ["non_atomic" "durability" "return_changes" "return_vals" "ignore_write_hook"] Write
    Replace 55 "REPLACE" 2..2 ["non_atomic" "durability" "return_changes" "return_vals" "ignore_write_hook"] Write
    Delete 54 "DELETE" 1..1 ["non_atomic" "durability" "return_changes" "return_vals" "ignore_write_hook"] Write
    Sync 138 "SYNC" 1..1 [] Write
    // Administration.
    DbCreate 57 "DB_CREATE" 1..1 [] Write
    DbDrop 58 "DB_DROP" 1..1 [] Write
    DbList 59 "DB_LIST" 0..0 [] Read
    TableCreate 60 "TABLE_CREATE" 1..2 ["primary_key" "shards" "replicas" "nonvoting_replica_tags" "primary_replica_tag" "durability" "compression"] Write
    TableDrop 61 "TABLE_DROP" 1..2 [] Write
    TableList 62 "TABLE_LIST" 0..1 [] Read
    Config 174 "CONFIG" 1..1 [] Read
    Status 175 "STATUS" 1..1 [] Read
    Wait 177 "WAIT" 0..1 ["wait_for" "timeout"] Write
    Reconfigure 176 "RECONFIGURE" 0..1 ["shards" "replicas" "dry_run" "emergency_repair" "nonvoting_replica_tags" "primary_replica_tag"] Write
    Rebalance 179 "REBALANCE" 0..1 [] Write
    Grant 188 "GRANT" 2..3 [] Write
    IndexCreate 75 "INDEX_CREATE" 2..3 ["multi" "geo"] Write
    IndexDrop 76 "INDEX_DROP" 2..2 [] Write
    IndexList 77 "INDEX_LIST" 1..1 [] Read
    IndexStatus 139 "INDEX_STATUS" 1.. [] Read
    IndexWait 140 "INDEX_WAIT" 1.. [] Write
    IndexRename 156 "INDEX_RENAME" 3..3 ["overwrite"] Write
    SetWriteHook 189 "SET_WRITE_HOOK" 2..2 [] Write
    GetWriteHook 190 "GET_WRITE_HOOK" 1..1 [] Write
    // Time.
    Iso8601 99 "ISO8601" 1..1 ["default_timezone"] Closed
    ToIso8601 100 "TO_ISO8601" 1..1 [] Closed
    EpochTime 101 "EPOCH_TIME" 1..1 [] Closed
    ToEpochTime 102 "TO_EPOCH_TIME" 1..1 [] Closed
    Now 103 "NOW" 0..0 [] Constant
    InTimezone 104 "IN_TIMEZONE" 2..2 [] Closed
    During 105 "DURING" 3..3 ["left_bound" "right_bound"] Closed
    Date 106 "DATE" 1..1 [] Closed
    Monday 107 "MONDAY" 0..0 [] Closed
    Tuesday 108 "TUESDAY" 0..0 [] Closed
    Wednesday 109 "WEDNESDAY" 0..0 [] Closed
    Thursday 110 "THURSDAY" 0..0 [] Closed
    Friday 111 "FRIDAY" 0..0 [] Closed
    Saturday 112 "SATURDAY" 0..0 [] Closed
    Sunday 113 "SUNDAY" 0..0 [] Closed
    January 114 "JANUARY" 0..0 [] Closed
    February 115 "FEBRUARY" 0..0 [] Closed
    March 116 "MARCH" 0..0 [] Closed
    April 117 "APRIL" 0..0 [] Closed
    May 118 "MAY" 0..0 [] Closed
    June 119 "JUNE" 0..0 [] Closed
    July 120 "JULY" 0..0 [] Closed
    August 121 "AUGUST" 0..0 [] Closed
    September 122 "SEPTEMBER" 0..0 [] Closed
    October 123 "OCTOBER" 0..0 [] Closed
    November 124 "NOVEMBER" 0..0 [] Closed
    December 125 "DECEMBER" 0..0 [] Closed
    TimeOfDay 126 "TIME_OF_DAY" 1..1 [] Closed
    Timezone 127 "TIMEZONE" 1..1 [] Closed
    Year 128 "YEAR" 1..1 [] Closed
    Month 129 "MONTH" 1..1 [] Closed
    Day 130 "DAY" 1..1 [] Closed
    DayOfWeek 131 "DAY_OF_WEEK" 1..1 [] Closed
    DayOfYear 132 "DAY_OF_YEAR" 1..1 [] Closed
    Hours 133 "HOURS" 1..1 [] Closed
    Minutes 134 "MINUTES" 1..1 [] Closed
    Seconds 135 "SECONDS" 1..1 [] Closed
    Time 136 "TIME" 4..7 [] Closed
    // Geometry.
    Geojson 157 "GEOJSON" 1..1 [] Shape
    ToGeojson 158 "TO_GEOJSON" 1..1 [] Closed
    Point 159 "POINT" 2..2 [] Closed
    Line 160 "LINE" 2.. [] Shape
    Polygon 161 "POLYGON" 3.. [] Shape
    Distance 162 "DISTANCE" 2..2 ["geo_system" "unit"] Shape
    Intersects 163 "INTERSECTS" 2..2 [] Shape
    Includes 164 "INCLUDES" 2..2 [] Shape
    Circle 165 "CIRCLE" 2..2 ["num_vertices" "geo_system" "unit" "fill"] Shape
    GetIntersecting 166 "GET_INTERSECTING" 2..2 ["index"] Read
    Fill 167 "FILL" 1..1 [] Shape
    GetNearest 168 "GET_NEAREST" 2..2 ["index" "max_results" "max_dist" "geo_system" "unit"] Read
    PolygonSub 171 "POLYGON_SUB" 2..2 [] Shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_is_found_under_its_own_number_only() {
        assert_eq!(all().len(), 187);
        for row in all() {
            assert_eq!(by_id(row.id), Some(row.op), "{}", row.name);
            assert_eq!(of(row.op).id, row.id);
        }
        assert_eq!(by_id(46), None);
        assert_eq!(by_id(9999), None);
    }

    #[test]
    fn arity_errors_read_like_the_reference() {
        assert_eq!(of(Op::Get).arity.mismatch(1), "Expected 2 arguments but found 1.");
        assert_eq!(of(Op::Not).arity.mismatch(0), "Expected 1 argument but found 0.");
        assert_eq!(of(Op::Eq).arity.mismatch(1), "Expected 2 or more arguments but found 1.");
        assert_eq!(of(Op::Add).arity.mismatch(0), "Expected 1 or more arguments but found 0.");
        assert_eq!(of(Op::Slice).arity.mismatch(1), "Expected between 2 and 3 arguments but found 1.");
        assert_eq!(of(Op::DbList).arity.mismatch(1), "Expected 0 arguments but found 1.");
    }
}
