//! A notation for terms, similar to the JavaScript driver's.
//!
//! ```text
//! [1, 2].map(x => x.add(1))        {a: 1}["a"]        r.branch(true, 1, r.error("no"))
//! [{a: 1}].filter(x => x["b"], default: true)         1.do((x) => x.mul(x))
//! ```
//!
//! A name before `:` in an argument list is an optional argument. `r.row`, `r.minval` and
//! `r.maxval` need no parentheses, `r.wire([…])` is the wire's own JSON.

use serde_json::{Map, Value, json};

/// The wire form of the term.
pub fn to_wire(text: &str) -> Result<Value, String> {
    let mut parser = Parser { text, at: 0, scopes: Vec::new(), next_var: 1 };
    let term = parser.expression()?;
    match parser.peek() {
        None => Ok(term),
        Some(_) => Err(parser.expected("the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    scopes: Vec<(&'a str, u64)>,
    next_var: u64,
}

/// Positional and optional arguments.
type Arguments = (Vec<Value>, Map<String, Value>);

impl<'a> Parser<'a> {
    fn expression(&mut self) -> Result<Value, String> {
        if let Some(params) = self.lambda() {
            return self.function(&params);
        }
        let mut term = self.primary()?;
        loop {
            if self.eat('.') {
                let name = self.name()?;
                self.need('(')?;
                let (mut args, optargs) = self.arguments()?;
                if name == "do" {
                    let function = args.pop().ok_or("do needs a function")?;
                    args.insert(0, term);
                    args.insert(0, function);
                } else {
                    args.insert(0, term);
                }
                term = call(name, args, optargs)?;
            } else if self.eat('[') {
                let key = self.expression()?;
                self.need(']')?;
                term = json!([170, [term, key]]);
            } else {
                return Ok(term);
            }
        }
    }

    /// The parameters of a function, if one begins at this position.
    fn lambda(&mut self) -> Option<Vec<&'a str>> {
        let start = self.at;
        let mut params = Vec::new();
        if self.eat('(') {
            while let Ok(name) = self.name() {
                params.push(name);
                self.eat(',');
            }
            if !self.eat(')') {
                self.at = start;
                return None;
            }
        } else if let Ok(name) = self.name() {
            params.push(name);
        }
        self.skip_space();
        if self.text[self.at..].starts_with("=>") {
            self.at += 2;
            return Some(params);
        }
        self.at = start;
        None
    }

    fn function(&mut self, params: &[&'a str]) -> Result<Value, String> {
        let outer = self.scopes.len();
        let mut ids = Vec::new();
        for name in params {
            ids.push(self.next_var);
            self.scopes.push((name, self.next_var));
            self.next_var += 1;
        }
        let body = self.expression()?;
        self.scopes.truncate(outer);
        Ok(json!([69, [[2, ids], body]]))
    }

    fn primary(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some('[') => {
                self.at += 1;
                let items = self.list(']')?;
                Ok(json!([2, items]))
            }
            Some('{') => {
                self.at += 1;
                self.members()
            }
            Some('(') => {
                self.at += 1;
                let inner = self.expression()?;
                self.need(')')?;
                Ok(inner)
            }
            Some('"' | '-' | '0'..='9') => self.json(),
            _ => self.named(),
        }
    }

    fn named(&mut self) -> Result<Value, String> {
        let name = self.name()?;
        match name {
            "true" => return Ok(json!(true)),
            "false" => return Ok(json!(false)),
            "null" => return Ok(json!(null)),
            "r" => {}
            variable => {
                let bound = self.scopes.iter().rev().find(|(known, _)| *known == variable);
                let (_, id) = bound.ok_or_else(|| format!("no variable {variable}"))?;
                return Ok(json!([10, [id]]));
            }
        }
        self.need('.')?;
        let name = self.name()?;
        match name {
            "row" => return Ok(json!([13, []])),
            "minval" => return Ok(json!([180, []])),
            "maxval" => return Ok(json!([181, []])),
            _ => self.need('(')?,
        }
        if name == "wire" {
            let value = self.json()?;
            self.need(')')?;
            return Ok(value);
        }
        let (mut args, optargs) = self.arguments()?;
        if name == "expr" {
            return args.pop().ok_or_else(|| "expr needs a value".to_owned());
        }
        if name == "do" {
            let function = args.pop().ok_or("do needs a function")?;
            args.insert(0, function);
        }
        call(name, args, optargs)
    }

    fn arguments(&mut self) -> Result<Arguments, String> {
        let (mut args, mut optargs) = (Vec::new(), Map::new());
        while !self.eat(')') {
            let start = self.at;
            match self.name() {
                Ok(name) if self.eat(':') => {
                    optargs.insert(name.to_owned(), self.expression()?);
                }
                _ => {
                    self.at = start;
                    args.push(self.expression()?);
                }
            }
            self.eat(',');
        }
        Ok((args, optargs))
    }

    fn list(&mut self, end: char) -> Result<Vec<Value>, String> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(self.expression()?);
            self.eat(',');
        }
        Ok(items)
    }

    fn members(&mut self) -> Result<Value, String> {
        let mut members = Map::new();
        while !self.eat('}') {
            let key = match self.peek() {
                Some('"') => self.json()?.as_str().unwrap_or_default().to_owned(),
                _ => self.name()?.to_owned(),
            };
            self.need(':')?;
            members.insert(key, self.expression()?);
            self.eat(',');
        }
        Ok(Value::Object(members))
    }

    /// A JSON value, read by serde_json.
    fn json(&mut self) -> Result<Value, String> {
        self.skip_space();
        let rest = &self.text[self.at..];
        if rest.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            return self.number();
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next().ok_or("expected JSON")?.map_err(|error| error.to_string());
        self.at += values.byte_offset();
        value
    }

    fn number(&mut self) -> Result<Value, String> {
        let rest = &self.text[self.at..];
        let length = number_length(rest);
        self.at += length;
        rest[..length].parse::<f64>().map(Value::from).map_err(|error| error.to_string())
    }

    fn name(&mut self) -> Result<&'a str, String> {
        self.skip_space();
        let rest = &self.text[self.at..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.expected("a name"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    fn need(&mut self, wanted: char) -> Result<(), String> {
        if self.eat(wanted) { Ok(()) } else { Err(self.expected(&wanted.to_string())) }
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.text[self.at..].chars().next()
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn expected(&self, what: &str) -> String {
        format!("expected {what} before {:?}", &self.text[self.at..])
    }
}

/// The length of the number at the start of `text`. A point without digits after it is not part of the number:
/// `1.do(…)`.
fn number_length(text: &str) -> usize {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(text.starts_with('-'));
    let mut end = sign + digits(sign);
    if end == sign {
        return 0;
    }
    if text[end..].starts_with('.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if text[end..].starts_with('e') {
        let sign = usize::from(text[end + 1..].starts_with(['-', '+']));
        let count = digits(end + 1 + sign);
        end += if count > 0 { 1 + sign + count } else { 0 };
    }
    end
}

fn call(name: &str, args: Vec<Value>, optargs: Map<String, Value>) -> Result<Value, String> {
    let wire_name = match name {
        "do" => "FUNCALL".to_owned(),
        other => other.to_uppercase(),
    };
    let row = rekindle_reql::signature::all().iter().find(|row| row.name == wire_name);
    let id = row.ok_or_else(|| format!("no term {name}"))?.id;
    if optargs.is_empty() { Ok(json!([id, args])) } else { Ok(json!([id, args, optargs])) }
}
