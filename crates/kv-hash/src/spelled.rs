//! Names that engines, algorithms and formats have in configurations.

/// Gives a type that has `ALL` and `as_str` its `Display` and, for exactly these texts, `FromStr`.
macro_rules! spelled {
    ($type:ident, $error:ident::$variant:ident) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $error;

            #[doc = "# Errors"]
            #[doc = concat!("[`", stringify!($error), "::", stringify!($variant), "`] for anything but")]
            #[doc = "the exact spelling."]
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL
                    .into_iter()
                    .find(|value| value.as_str() == text)
                    .ok_or_else(|| $error::$variant { text: crate::shown::shown(text) })
            }
        }
    };
}

pub(crate) use spelled;
