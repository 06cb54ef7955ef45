// The JSON of headers: the accepted texts, the refused texts with the place of the error, and the canonical text.
#include "wire/json.h"

#include "support/checks.h"

using namespace longhaul;

namespace {

std::string refusal(const std::string& text) {
  std::string error;
  return parse_json(text, error) ? "" : error;
}

std::string rewritten(const std::string& text) {
  std::string error;
  const auto value = parse_json(text, error);
  return value ? write_json(*value, KeyOrder::sorted) : error;
}

void accepts_and_writes_canonically() {
  CHECK(rewritten(" { \"b\" : [ 1 , 2.50 , true , null ] , \"a\" : \"\" } ") == "{\"a\":\"\",\"b\":[1,2.5,true,null]}");
  CHECK(rewritten("\"\\u00e9\\ud83d\\ude00\\n\\u0001\"") == "\"\u00e9\U0001F600\\n\\u0001\"");
  // ECMAScript's number format, which TypeScript's canonical JSON uses.
  CHECK(rewritten("[1e-6,1e-7,1.5e-9,123456789012345680000,1e21,-0,-0.1,1e2,0.1,5e-324]") ==
        "[0.000001,1e-7,1.5e-9,123456789012345680000,1e+21,0,-0.1,100,0.1,5e-324]");
  CHECK(rewritten("9007199254740993") == "9007199254740992");
}

void refuses() {
  CHECK(refusal("") == "unexpected end at byte 0");
  CHECK(refusal("{\"a\":1,}") == "expected a key at byte 7");
  CHECK(refusal("[1 2]") == "expected , or ] at byte 3");
  CHECK(refusal("{\"a\":1,\"a\":2}").starts_with("repeated key"));
  CHECK(refusal("01") == "text after the value at byte 1");
  CHECK(refusal("+1") != "");
  CHECK(refusal("1.") != "");
  CHECK(refusal(".5") != "");
  CHECK(refusal("NaN") != "");
  CHECK(refusal("1e999").starts_with("number out of range"));
  CHECK(refusal("\"\\ud800\"").starts_with("high surrogate alone"));
  CHECK(refusal("\"\\udc00\"").starts_with("low surrogate alone"));
  CHECK(refusal("\"a\nb\"").starts_with("control character"));
  CHECK(refusal("\"\xc0\xaf\"") == "not UTF-8");
  CHECK(refusal("\"\xed\xa0\x80\"") == "not UTF-8");
  CHECK(refusal("\"\xf4\x90\x80\x80\"") == "not UTF-8");
  CHECK(refusal(std::string(64, '[') + std::string(64, ']')) == "");
  CHECK(refusal(std::string(70, '[') + std::string(70, ']')).starts_with("nested deeper"));
  CHECK(refusal(std::string(1 << 20, '[')).starts_with("nested deeper"));
}

void every_truncation_and_flip_is_survived() {
  const std::string text = "{\"k\":[-1.5e+3,\"x\\u00e9\",{\"z\":false}],\"\xf0\x9f\x98\x80\":null}";
  for (std::size_t size = 0; size < text.size(); ++size) CHECK(refusal(text.substr(0, size)) != "");
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      std::string error;
      const auto value = parse_json(changed, error);
      CHECK(value.has_value() == error.empty());
      // An accepted value is written as text that is accepted again.
      if (value) CHECK(refusal(write_json(*value)) == "");
    }
  }
}

}  // namespace

int main() {
  accepts_and_writes_canonically();
  refuses();
  every_truncation_and_flip_is_survived();
  return test::finish();
}
