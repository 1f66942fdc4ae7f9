/** @file
 * Visibility of symbols: liblarklane.so exports only names marked here. */
#pragma once

/** An exported function or class. */
#define LARKLANE_API __attribute__((visibility("default")))
/** A hidden part of an exported class. */
#define LARKLANE_HIDDEN __attribute__((visibility("hidden")))
