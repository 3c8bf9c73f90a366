//! Civil time for templates that print the date, and Python's `strftime` of it.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A date and time of day without a zone, as Python's naive `datetime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// Year, 1970 and later.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// Microsecond, 0 to 999,999.
    pub microsecond: u32,
}

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl CivilTime {
    /// The time in UTC, the zone engine containers run in.
    #[must_use]
    pub fn now_utc() -> Self {
        Self::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// The time so long after the start of 1970.
    #[must_use]
    pub fn from_unix(since_epoch: Duration) -> Self {
        let seconds = since_epoch.as_secs();
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // Days since 0000-03-01 in eras of 400 years, years that start in March.
        let days = i64::try_from(days).unwrap_or(0) + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let small = |n: i64| u8::try_from(n).unwrap_or(0);
        let of_day = |n: u64| u8::try_from(n).unwrap_or(0);
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: small(month),
            day: small(day_of_year - (153 * shifted + 2) / 5 + 1),
            hour: of_day(rest / 3600),
            minute: of_day(rest / 60 % 60),
            second: of_day(rest % 60),
            microsecond: since_epoch.subsec_micros(),
        }
    }

    /// Day of the year, from 0.
    fn year_day(&self) -> i64 {
        const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let before = BEFORE.get(usize::from(self.month.wrapping_sub(1))).copied().unwrap_or(0);
        before + i64::from(leap && self.month > 2) + i64::from(self.day) - 1
    }

    /// Day of the week, Sunday is 0.
    fn week_day(&self) -> i64 {
        let y = self.year - 1;
        // 1 January of year 1 was a Monday.
        (y * 365 + y / 4 - y / 100 + y / 400 + self.year_day() + 1).rem_euclid(7)
    }

    /// ISO 8601 year and week.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.week_day() + 6) % 7;
        let week = (self.year_day() - monday_based + 10) / 7;
        let weeks_in = |year: i64| {
            let dec31 = Self { year, month: 12, day: 31, ..*self };
            let jan1 = Self { year, month: 1, day: 1, ..*self };
            if dec31.week_day() == 4 || jan1.week_day() == 4 { 53 } else { 52 }
        };
        if week < 1 {
            (self.year - 1, weeks_in(self.year - 1))
        } else if week > weeks_in(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }

    /// Python's `strftime` on Linux (glibc, C locale). Without a zone `%Z` and `%z` are empty;
    /// unknown directives stay as they are.
    #[must_use]
    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() * 2);
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            out.push_str(rest.get(..at).unwrap_or_default());
            let tail = rest.get(at + 1..).unwrap_or_default();
            let flag = tail.chars().next().filter(|c| "-_0^#".contains(*c));
            let directive = tail.chars().nth(usize::from(flag.is_some()));
            let text = directive.and_then(|d| self.directive(d, flag));
            let used = usize::from(flag.is_some()) + directive.map_or(0, char::len_utf8);
            match text {
                Some(text) => out.push_str(&text),
                None => {
                    out.push('%');
                    out.push_str(tail.get(..used).unwrap_or_default());
                }
            }
            rest = tail.get(used..).unwrap_or_default();
        }
        out.push_str(rest);
        out
    }

    fn directive(&self, directive: char, flag: Option<char>) -> Option<String> {
        let name = |names: &[&'static str], i: i64| {
            usize::try_from(i).ok().and_then(|i| names.get(i)).copied().unwrap_or_default()
        };
        let cased = |s: &str| match flag {
            Some('^') => s.to_uppercase(),
            _ => s.to_owned(),
        };
        let short = |s: &str| cased(s.get(..3).unwrap_or(s));
        let hour12 = i64::from((self.hour + 11) % 12 + 1);
        let (iso_year, iso_week) = self.iso_week();
        let half = if self.hour < 12 { "AM" } else { "PM" };
        let pad = |value: i64, width: usize, fill: char| Some(padded(value, width, fill, flag));
        match directive {
            'Y' => pad(self.year, 1, '0'),
            'C' => pad(self.year / 100, 2, '0'),
            'y' => pad(self.year % 100, 2, '0'),
            'm' => pad(self.month.into(), 2, '0'),
            'd' => pad(self.day.into(), 2, '0'),
            'e' => pad(self.day.into(), 2, ' '),
            'H' => pad(self.hour.into(), 2, '0'),
            'k' => pad(self.hour.into(), 2, ' '),
            'I' => pad(hour12, 2, '0'),
            'l' => pad(hour12, 2, ' '),
            'M' => pad(self.minute.into(), 2, '0'),
            'S' => pad(self.second.into(), 2, '0'),
            'j' => pad(self.year_day() + 1, 3, '0'),
            'u' => pad((self.week_day() + 6) % 7 + 1, 1, '0'),
            'w' => pad(self.week_day(), 1, '0'),
            'U' => pad((self.year_day() + 7 - self.week_day()) / 7, 2, '0'),
            'W' => pad((self.year_day() + 7 - (self.week_day() + 6) % 7) / 7, 2, '0'),
            'V' => pad(iso_week, 2, '0'),
            'G' => pad(iso_year, 1, '0'),
            'g' => pad(iso_year % 100, 2, '0'),
            'f' => Some(format!("{:06}", self.microsecond)),
            'A' => Some(cased(name(&DAYS, self.week_day()))),
            'a' => Some(short(name(&DAYS, self.week_day()))),
            'B' => Some(cased(name(&MONTHS, i64::from(self.month) - 1))),
            'b' | 'h' => Some(short(name(&MONTHS, i64::from(self.month) - 1))),
            'p' => Some(if flag == Some('#') { half.to_lowercase() } else { half.to_owned() }),
            'P' => Some(half.to_lowercase()),
            'c' => Some(self.strftime("%a %b %e %H:%M:%S %Y")),
            'x' | 'D' => Some(self.strftime("%m/%d/%y")),
            'X' | 'T' => Some(self.strftime("%H:%M:%S")),
            'F' => Some(self.strftime("%Y-%m-%d")),
            'R' => Some(self.strftime("%H:%M")),
            'r' => Some(self.strftime("%I:%M:%S %p")),
            'Z' | 'z' => Some(String::new()),
            'n' => Some("\n".to_owned()),
            't' => Some("\t".to_owned()),
            '%' => Some("%".to_owned()),
            _ => None,
        }
    }
}

fn padded(value: i64, width: usize, fill: char, flag: Option<char>) -> String {
    let mut out = String::new();
    let _ = match (flag, fill) {
        (Some('-'), _) => write!(out, "{value}"),
        (Some('_'), _) | (None | Some('^' | '#'), ' ') => write!(out, "{value:width$}"),
        _ => write!(out, "{value:0width$}"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> CivilTime {
        CivilTime::from_unix(Duration::from_secs(seconds))
    }

    #[test]
    fn civil_dates() {
        assert_eq!(at(0).strftime("%F %T %A %j"), "1970-01-01 00:00:00 Thursday 001");
        assert_eq!(at(951_782_400).strftime("%F %a %j"), "2000-02-29 Tue 060");
        assert_eq!(at(4_102_444_799).strftime("%F %T"), "2099-12-31 23:59:59");
    }

    #[test]
    fn python_directives() {
        let t = at(1_741_529_107);
        assert_eq!(
            t.strftime("%-d/%-m/%y %H:%M:%S %Z|%z|%f|%U|%c|%x|%X|%%|%q"),
            "9/3/25 14:05:07 ||000000|10|Sun Mar  9 14:05:07 2025|03/09/25|14:05:07|%|%q"
        );
        assert_eq!(
            t.strftime("%V %G %u %w %W %I %p %e %k %l %^a é%"),
            "10 2025 7 0 09 02 PM  9 14  2 SUN é%"
        );
        // 1 January 2027 is a Friday in the last week of 2026.
        assert_eq!(at(1_798_761_600).strftime("%G-W%V %Y"), "2026-W53 2027");
        assert_eq!(at(1_735_603_200).strftime("%G-W%V %Y"), "2025-W01 2024");
    }
}
