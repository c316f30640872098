#include "tessera/base/json/bounded_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

constexpr JsonKind kNote{.name = "note", .max_levels = 3, .max_bytes = 1 << 20};
constexpr JsonKind kCutNote{.name = "note", .max_levels = 2, .leaves_out_deeper = true};
// Values of so many levels take the whole stack when they are copied.
constexpr size_t kDeep = 400'000;

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string refusal(const std::string& text, const JsonKind& kind = kNote, const std::string& subject = "a.json") {
  EXPECT_TRUE(parse_json_or_discard<ordered_json>(text, kind).is_discarded());
  try {
    parse_bounded_json<ordered_json>(text, subject, kind);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(BoundedJson, ReadsWhatTheLibraryReads) {
  for (const char* text : {"null", "true", " -3 ", "18446744073709551615", "99999999999999999999", "0.5e-3",
                           "\"\\u00fc \\\" \\n\"", "[]", "{}", "[[1,\"a\"],[],[null,false]]",
                           R"({"b":[1,2],"a":{"x":{}},"":0})", R"({"a":1,"b":2,"a":[3]})", "\xef\xbb\xbf[1]"}) {
    const auto read = parse_bounded_json<ordered_json>(text, "a.json", kNote);
    EXPECT_EQ(read, ordered_json::parse(text)) << text;
    EXPECT_EQ(read.dump(), ordered_json::parse(text).dump()) << "and keeps the order";
    EXPECT_EQ(parse_bounded_json<json>(text, "a.json", kNote), json::parse(text)) << text;
    EXPECT_EQ(parse_json_or_discard<json>(text, kNote), json::parse(text)) << text;
  }
}

TEST(BoundedJson, RefusesOneLevelMoreThanItsKindHasAndSaysWhere) {
  EXPECT_EQ(parse_bounded_json<json>("[[[1]]]", "a.json", kNote).dump(), "[[[1]]]");
  EXPECT_EQ(refusal("[[\n  [[1]]]]"),
            "a.json: nested deeper than 3 levels, as no note is: line 2, column 4: \"[\" cannot stand there");
  EXPECT_EQ(refusal(R"({"a":{"b":{"c":{}}}})"),
            "a.json: nested deeper than 3 levels, as no note is: line 1, column 16: \"{\" cannot stand there");
  EXPECT_EQ(refusal("[]", {.name = "number", .max_levels = 0}),
            "a.json: nested deeper than 0 levels, as no number is: line 1, column 1: \"[\" cannot stand there");
}

TEST(BoundedJson, DoesNotTakeTheStackWhateverIsNested) {
  const JsonKind any_length{.name = "note", .max_levels = 3};
  for (const char* open : {"[", "{\"a\":", "[1,", "[{\"a\":"}) {
    EXPECT_THAT(refusal(repeated(open, kDeep), any_length), StartsWith("a.json: nested deeper than 3 levels")) << open;
  }
  EXPECT_THAT(refusal(std::string(kDeep, '[') + std::string(kDeep, ']'), any_length), EndsWith("cannot stand there"));
}

TEST(BoundedJson, CountsLevelsByWhatIsOpenNotByWhatWasThere) {
  const std::string wide = "[" + repeated("[[]],{\"a\":[]},", 1000) + "0]";
  EXPECT_EQ(parse_bounded_json<json>(wide, "a.json", kNote).size(), 2001U);
}

TEST(BoundedJson, SaysWhatIsNoJsonAndWhere) {
  EXPECT_EQ(refusal(""), "a.json: not JSON: the text is empty");
  EXPECT_EQ(refusal("{\n \"a\": x}"), "a.json: not JSON: line 2, column 7: \"x\" cannot stand there");
  EXPECT_EQ(refusal("[1,"), "a.json: not JSON: line 1, column 4: the text ends before it is whole");
  EXPECT_EQ(refusal("[1] 2"), "a.json: not JSON: line 1, column 5: \"2\" cannot stand there");
  EXPECT_THAT(refusal("[1e999]"), AllOf(StartsWith("a.json: not JSON: "), testing::HasSubstr("1e999")));
  EXPECT_EQ(refusal("x", kNote, ""), "not JSON: line 1, column 1: \"x\" cannot stand there");
}

TEST(BoundedJson, RefusesATextThatIsLongerThanItsKind) {
  EXPECT_EQ(refusal(std::string(2 << 20, ' ')), "a.json: it has 2.0 MiB, at most 1.0 MiB of a note are read");
}

TEST(BoundedJson, TakesTheLastOfEqualMembersUnlessItsKindRefusesThem) {
  const std::string text = "{\"a\": {\"b\": 1},\n\"c\": {\"b\": 1},\n\"a\": 2}";
  EXPECT_EQ(parse_bounded_json<ordered_json>(text, "a.json", kNote).dump(), R"({"a":2,"c":{"b":1}})");
  const JsonKind strict{.name = "note", .refuses_repeated = true};
  EXPECT_EQ(refusal(text, strict), "a.json: the member \"a\" occurs twice in one object, in line 3");
  EXPECT_EQ(refusal("{\"\x1b\":1,\"\x1b\":2}", strict),
            "a.json: not JSON: line 1, column 3: \"\\x1b\" cannot stand there");
  EXPECT_EQ(parse_bounded_json<json>(R"([{"a":1},{"a":2},{"a":{"a":3}}])", "a.json", strict).size(), 3U);
}

TEST(BoundedJson, LeavesOutWhatIsDeeperWhereItsKindSaysSo) {
  const auto kept = [](const std::string& text) { return parse_json_or_discard<ordered_json>(text, kCutNote).dump(); };
  EXPECT_EQ(kept(R"({"a":{"b":[1,{"a":2}],"c":3},"d":[[4],5,{"e":6}]})"), R"({"a":{"c":3},"d":[5]})");
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  EXPECT_EQ(kept("{\"a\":1,\"b\":{\"c\":" + deep + "},\"d\":[" + deep + ",2]}"), R"({"a":1,"b":{},"d":[2]})");
  EXPECT_THAT(refusal(std::string(kDeep, '['), kCutNote), EndsWith("the text ends before it is whole"));
}

}  // namespace
}  // namespace tessera
