/* What liblarklane.so shows; all else is hidden. */
#pragma once

#define LARKLANE_API __attribute__((visibility("default")))
/* Of something inside an exported class. */
#define LARKLANE_HIDDEN __attribute__((visibility("hidden")))
