// The text form of JSON: tests/python/output_file_test.py expects the same of Python's.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "measure/json_text.hpp"

namespace larklane::bench {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonText, ShortValueTakesOneLine) {
  EXPECT_EQ(json_text(Json::object()), "{}\n");
  EXPECT_EQ(json_text(1.5), "1.5\n");
  EXPECT_EQ(json_text({{"a", {{"b", 1}, {"c", Json::array()}}}, {"d", {1, 2}}}),
            "{\"a\": {\"b\": 1, \"c\": []}, \"d\": [1, 2]}\n");
}

TEST(JsonText, SeriesTakesOneLine) {
  std::string numbers = "[0";
  Json series{0};
  for (int i = 1; i < 100; ++i) {
    series.push_back(i);
    numbers += ", " + std::to_string(i);
  }
  series.push_back(nullptr);
  numbers += ", null]";
  EXPECT_EQ(json_text({{"x", series}, {"y", "z"}}),
            "{\n \"x\": " + numbers + ",\n \"y\": \"z\"\n}\n");
  EXPECT_EQ(json_text({{"rows", {series, series}}}),
            "{\n \"rows\": [\n  " + numbers + ",\n  " + numbers + "\n ]\n}\n");
}

TEST(JsonText, ReadsBackAsTheValue) {
  const Json value{{"name", "\xc3\xa9\n"}, {"rows", std::vector<std::string>(9, "text of a row")}};
  EXPECT_EQ(Json::parse(json_text(value)), value);
  EXPECT_EQ(json_text("a\xff"), "\"a\xef\xbf\xbd\"\n");
}

}  // namespace
}  // namespace larklane::bench
