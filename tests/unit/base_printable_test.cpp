// Printable: escapes of bytes that a terminal would obey.

#include <gtest/gtest.h>

#include <string>

#include "base/printable.hpp"

namespace larklane {
namespace {

TEST(Printable, TextsOfPeopleStayAsTheyAre) {
  for (const char* text : {"", "a b", "größer", "\xe2\x82\xac 5", "\xf0\x9f\x90\xa6", "C:\\x"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, TerminalControlsAreEscaped) {
  const struct {
    std::string text, shown;
  } cases[] = {
      {"\x1b[31m", "\\x1b[31m"},
      {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
      {std::string("\0", 1), "\\x00"},
      {"\x7f", "\\x7f"},
      {"\x9b", "\\x9b"},                             // no UTF-8
      {"\xc2\x9b", "\\xc2\\x9b"},                    // CSI of C1
      {"\xc0\x9b", "\\xc0\\x9b"},                    // overlong
      {"\xe2\x80\xae", "\\xe2\\x80\\xae"},           // right to left override
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // surrogate
      {"\xe2\x82", "\\xe2\\x82"},                    // cut off
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // above U+10FFFF
  };
  for (const auto& c : cases) EXPECT_EQ(printable(c.text), c.shown);
}

TEST(Printable, ALongTextEndsInItsLength) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef... (7 bytes)");
  EXPECT_EQ(printable("abcde\xc3\xa4", 6), "abcde... (7 bytes)");  // not within a character
}

TEST(Printable, WithoutMemoryOfItsOwnItStopsAtTheCapacity) {
  char out[5];
  EXPECT_EQ(std::string(out, print_to("ab\ncd", out, sizeof out)), "ab\\nc");
  EXPECT_EQ(std::string(out, print_to("abc\x1b", out, sizeof out)), "abc");
}

}  // namespace
}  // namespace larklane
