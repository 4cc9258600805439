// Compare what an implementation wrote with a vector of this folder. C++17 in one file, no library:
//
//     g++ -std=c++17 -O2 -o check check.cpp
//     ./check SET VECTOR ANSWER... [--convention NAME]... [--only FIELD]...
//
// SET, VECTOR, ANSWER and what is printed are those of check.py, which says the same in Python.
// Exits with 0 if every byte is right, 1 if one is not, 64 if that cannot be said.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using Bytes = std::string;
using Shape = std::vector<std::uint64_t>;

const char* const kFormat = "nvfp4-vectors 1";
constexpr std::uint64_t kMostBytes = 1ull << 30, kMostHeader = 1ull << 24;
constexpr int kEqual = 0, kDifferent = 1, kRefused = 64, kDeepest = 32;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string shown(const std::string& text) {
  std::string found = "'";
  for (unsigned char each : text.substr(0, 80)) found += each < 0x20 || each > 0x7e ? '?' : static_cast<char>(each);
  return found + "'";
}

// JSON, strictly: no NaN, no name twice, nothing behind it. Numbers other than integers are kept as `other`.

struct Json {
  enum Kind { other, integer, string, list, object } kind = other;
  std::uint64_t number = 0;
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> members;

  const Json* find(const std::string& name) const {
    for (const auto& member : members)
      if (member.first == name) return &member.second;
    return nullptr;
  }
  std::string word(const std::string& name) const {
    const Json* found = find(name);
    return found && found->kind == string ? found->text : "";
  }
};

class Parser {
 public:
  explicit Parser(const Bytes& content) : content_(content) {}

  Json whole() {
    Json found = value(0);
    space();
    if (at_ != content_.size()) fail();
    return found;
  }

 private:
  [[noreturn]] static void fail() { throw std::invalid_argument("JSON"); }
  char peek() const { return at_ < content_.size() ? content_[at_] : '\0'; }
  char next() {
    if (at_ >= content_.size()) fail();
    return content_[at_++];
  }
  void expect(char wanted) {
    if (next() != wanted) fail();
  }
  void space() {
    while (at_ < content_.size() && std::strchr(" \t\r\n", content_[at_]) && content_[at_]) ++at_;
  }
  void literal(const char* word) {
    while (*word) expect(*word++);
  }

  Json value(int depth) {
    if (depth > kDeepest) fail();
    space();
    Json found;
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return list(depth);
      case '"':
        found.kind = Json::string;
        found.text = string();
        return found;
      case 't':
        literal("true");
        return found;
      case 'f':
        literal("false");
        return found;
      case 'n':
        literal("null");
        return found;
      default:
        return number();
    }
  }

  Json object(int depth) {
    Json found;
    found.kind = Json::object;
    std::map<std::string, bool> there;
    expect('{');
    space();
    if (peek() == '}') return next(), found;
    for (;;) {
      space();
      std::string name = string();
      if (!there.emplace(name, true).second) fail();
      space();
      expect(':');
      found.members.emplace_back(std::move(name), value(depth + 1));
      space();
      const char mark = next();
      if (mark == '}') return found;
      if (mark != ',') fail();
    }
  }

  Json list(int depth) {
    Json found;
    found.kind = Json::list;
    expect('[');
    space();
    if (peek() == ']') return next(), found;
    for (;;) {
      found.items.push_back(value(depth + 1));
      space();
      const char mark = next();
      if (mark == ']') return found;
      if (mark != ',') fail();
    }
  }

  bool digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start;
  }

  Json number() {
    Json found;
    const std::size_t start = at_;
    const bool negative = peek() == '-';
    if (negative) ++at_;
    const std::size_t first = at_;
    if (!digits() || (content_[first] == '0' && at_ - first > 1)) fail();
    const std::size_t end = at_;
    if (peek() == '.' && (++at_, !digits())) fail();
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) fail();
    }
    if (!negative && at_ == end && end - start <= 18) {
      found.kind = Json::integer;
      for (std::size_t i = start; i < end; ++i) found.number = found.number * 10 + (content_[i] - '0');
    }
    return found;
  }

  std::string string() {
    std::string found;
    expect('"');
    for (;;) {
      const unsigned char each = next();
      if (each == '"') return utf8(found) ? found : (fail(), found);
      if (each < 0x20) fail();
      if (each != '\\') {
        found += static_cast<char>(each);
        continue;
      }
      const char mark = next();
      const char* const names = "\"\\/bfnrt";
      const char* const place = mark ? std::strchr(names, mark) : nullptr;
      if (place)
        found += "\"\\/\b\f\n\r\t"[place - names];
      else if (mark == 'u')
        encode(code_point(), found);
      else
        fail();
    }
  }

  unsigned hex() {
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) {
      const char each = next();
      const char* const all = "0123456789abcdef";
      const char lower = each >= 'A' && each <= 'F' ? static_cast<char>(each + 32) : each;
      const char* const place = lower ? std::strchr(all, lower) : nullptr;
      if (!place) fail();
      found = found * 16 + static_cast<unsigned>(place - all);
    }
    return found;
  }

  unsigned code_point() {
    const unsigned high = hex();
    if (high < 0xd800 || high > 0xdfff) return high;
    if (high > 0xdbff) fail();
    expect('\\');
    expect('u');
    const unsigned low = hex();
    if (low < 0xdc00 || low > 0xdfff) fail();
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  static void encode(unsigned point, std::string& text) {
    if (point < 0x80) {
      text += static_cast<char>(point);
      return;
    }
    const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    text += static_cast<char>((0xf00 >> more & 0xff) | point >> 6 * more);
    for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (point >> 6 * i & 0x3f));
  }

  static bool utf8(const std::string& text) {
    for (std::size_t i = 0; i < text.size();) {
      const unsigned char lead = text[i++];
      const int more = lead < 0x80 ? 0 : lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
      if (more < 0 || text.size() - i < static_cast<std::size_t>(more)) return false;
      unsigned point = more ? lead & (0x3f >> more) : lead;
      for (int j = 0; j < more; ++j) {
        const unsigned char each = text[i++];
        if ((each & 0xc0) != 0x80) return false;
        point = point << 6 | (each & 0x3f);
      }
      const unsigned least[] = {0, 0x80, 0x800, 0x10000};
      if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    }
    return true;
  }

  const Bytes& content_;
  std::size_t at_ = 0;
};

Json parse(const Bytes& content, const std::string& path) {
  try {
    return Parser(content).whole();
  } catch (const std::invalid_argument&) {
    throw Refused(path + " has a header that is not JSON");
  }
}

// Files

struct Tensor {
  std::string dtype;  // empty where the file has none
  Shape shape;
  Bytes bytes;
};

std::uint64_t itemsize(const std::string& dtype) {
  if (dtype == "U8" || dtype == "F8_E4M3") return 1;
  if (dtype == "F16" || dtype == "BF16") return 2;
  return dtype == "F32" ? 4 : dtype == "I64" ? 8 : 0;
}

Bytes read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw Refused(path + " is not a file");
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error || size > kMostBytes) throw Refused(path + " has more bytes than are read");
  std::ifstream file(path, std::ios::binary);
  Bytes content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || content.size() != size) throw Refused(path + " cannot be read");
  return content;
}

std::uint64_t little_endian(const Bytes& bytes, std::size_t at, std::size_t count) {
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < count; ++i)
    found |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  return found;
}

bool extents(const Json* json, Shape& found) {
  if (!json || json->kind != Json::list || json->items.size() > 8) return false;
  found.clear();
  for (const Json& each : json->items) {
    if (each.kind != Json::integer) return false;
    found.push_back(each.number);
  }
  return true;
}

// The product, or a number that no file has where it is larger.
std::uint64_t product(const Shape& shape, std::uint64_t itemsize) {
  std::uint64_t found = itemsize;
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  for (std::uint64_t extent : shape) {
    if (extent > kMostBytes || (found *= extent) > kMostBytes) return ~0ull;
  }
  return found;
}

Tensor tensor(const std::string& path, const std::string& name, const Json& about, const Bytes& data, Shape& offsets) {
  Tensor found;
  found.dtype = about.word("dtype");
  const std::uint64_t size = itemsize(found.dtype);
  if (!size || !extents(about.find("shape"), found.shape))
    throw Refused(path + ": " + shown(name) + " has no dtype and shape that this knows");
  if (!extents(about.find("data_offsets"), offsets) || offsets.size() != 2 || offsets[0] > offsets[1] ||
      offsets[1] > data.size())
    throw Refused(path + ": " + shown(name) + " does not lie within the bytes of the file's tensors");
  if (product(found.shape, size) != offsets[1] - offsets[0])
    throw Refused(path + ": " + shown(name) + " has bytes that are not those of its shape");
  found.bytes = data.substr(offsets[0], offsets[1] - offsets[0]);
  return found;
}

std::map<std::string, Tensor> safetensors(const std::string& path, const Bytes& content) {
  if (content.size() < 8) throw Refused(path + " is cut off: a .safetensors begins with 8 bytes");
  const std::uint64_t size = little_endian(content, 0, 8);
  if (size > kMostHeader || size > content.size() - 8)
    throw Refused(path + " says that its header has more bytes than follow");
  const Json header = parse(content.substr(8, size), path);
  if (header.kind != Json::object) throw Refused(path + " has a header that names no tensors");
  const Bytes data = content.substr(8 + size);
  std::map<std::string, Tensor> found;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (const auto& [name, about] : header.members) {
    if (name == "__metadata__") continue;
    Shape offsets;
    found[name] = tensor(path, name, about, data, offsets);
    spans.emplace_back(offsets[0], offsets[1]);
  }
  std::sort(spans.begin(), spans.end());
  std::uint64_t end = 0;
  for (const auto& span : spans) {
    if (span.first != end) throw Refused(path + " has tensors that overlap, or bytes between them");
    end = span.second;
  }
  if (end != data.size()) throw Refused(path + " has more bytes of tensors than its header names");
  return found;
}

// {'descr': '|u1', 'fortran_order': False, 'shape': (48, 40), }, as NumPy writes it and no other way.
Tensor npy(const std::string& path) {
  const Bytes content = read(path);
  if (content.size() < 12 || content.compare(0, 6, "\x93NUMPY") != 0 || content[6] < 1 || content[6] > 3)
    throw Refused(path + " is not a .npy file");
  const std::size_t width = content[6] == 1 ? 2 : 4, start = 8 + width;
  const std::uint64_t size = little_endian(content, 8, width);
  if (size > kMostHeader || size > content.size() - start)
    throw Refused(path + " says that its header has more bytes than follow");
  const std::string text = content.substr(start, size);
  const std::string first = "{'descr': '", second = "', 'fortran_order': False, 'shape': (";
  const std::size_t middle = text.find(second), last = text.find(')');
  if (text.compare(0, first.size(), first) != 0 || middle == std::string::npos || last == std::string::npos ||
      last < middle)
    throw Refused(path + " has a header that this does not know; it must be one array in C order");
  Tensor found;
  found.dtype = text.substr(first.size(), middle - first.size());
  std::string number;
  for (std::size_t i = middle + second.size(); i <= last; ++i) {
    if (text[i] >= '0' && text[i] <= '9' && number.size() < 18) {
      number += text[i];
    } else if (text[i] == ',' || text[i] == ')' || text[i] == ' ') {
      if (!number.empty()) found.shape.push_back(std::stoull(number));
      number.clear();
    } else {
      throw Refused(path + " has a shape that is none");
    }
  }
  found.bytes = content.substr(start + size);
  return found;
}

// SHA-256, FIPS 180-4

std::uint32_t rotated(std::uint32_t x, int by) { return x >> by | x << (32 - by); }

// The first 32 bits behind the point of a root of a prime.
std::uint32_t root_bits(int prime, bool cube) {
  const long double root =
      cube ? std::cbrt(static_cast<long double>(prime)) : std::sqrt(static_cast<long double>(prime));
  return static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

std::string sha256(Bytes content) {
  std::vector<std::uint32_t> k, h;
  for (int n = 2; k.size() < 64; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    if (h.size() < 8) h.push_back(root_bits(n, false));
    k.push_back(root_bits(n, true));
  }
  const std::uint64_t bits = 8 * static_cast<std::uint64_t>(content.size());
  content += '\x80';
  content.append((120 - content.size() % 64) % 64, '\0');
  for (int i = 7; i >= 0; --i) content += static_cast<char>(bits >> 8 * i & 0xff);
  for (std::size_t start = 0; start < content.size(); start += 64) {
    std::uint32_t w[64], v[8];
    for (int i = 0; i < 16; ++i) {
      w[i] = 0;
      for (int j = 0; j < 4; ++j) w[i] = w[i] << 8 | static_cast<unsigned char>(content[start + 4 * i + j]);
    }
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t one = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t two = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + one + w[i - 7] + two;
    }
    std::copy(h.begin(), h.end(), v);
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t sums = rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25);
      const std::uint32_t first = v[7] + sums + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      const std::uint32_t major = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
      const std::uint32_t second = (rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22)) + major;
      for (int j = 7; j > 0; --j) v[j] = v[j - 1];
      v[4] += first;
      v[0] = first + second;
    }
    for (int i = 0; i < 8; ++i) h[i] += v[i];
  }
  std::string found;
  for (std::uint32_t each : h) {
    char hex[9];
    std::snprintf(hex, sizeof hex, "%08x", each);
    found += hex;
  }
  return found;
}

// Numbers

std::int64_t order(std::uint64_t bits, std::uint64_t sign) {
  // Below zero, the bits of a float grow as it falls.
  return bits < sign ? static_cast<std::int64_t>(bits) : -1 - static_cast<std::int64_t>(bits - sign);
}

bool is_nan(std::uint64_t bits, const std::string& dtype) {
  if (dtype == "F16") return (bits & 0x7fff) > 0x7c00;
  if (dtype == "BF16") return (bits & 0x7fff) > 0x7f80;
  return dtype == "F32" && (bits & 0x7fffffff) > 0x7f800000;
}

// e5m2 is the upper half of a float16.
bool is_nan_byte(unsigned bits, const std::string& holds) {
  return holds == "e5m2" ? is_nan(bits << 8, "F16") : (bits & 0x7f) == 0x7f;
}

std::string general(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The number of an exponent and a mantissa of so many bits
double number_of(int exponent, std::uint64_t mantissa, int bias, int mantissas) {
  const double least = exponent ? std::ldexp(1.0, mantissas) : 0.0;
  return std::ldexp(static_cast<double>(mantissa) + least, std::max(exponent, 1) - bias - mantissas);
}

// A byte of e4m3, or of another format of which the index says that it is
std::string scale(std::uint64_t bits, const std::string& holds) {
  if (holds == "e8m0") return bits == 0xff ? "nan" : general(std::ldexp(1.0, static_cast<int>(bits) - 127));
  const bool has_sign = holds != "ue5m3";
  if (bits == 0xff || (bits == 0x7f && has_sign)) return "nan";
  const int exponent = static_cast<int>(bits >> 3 & (has_sign ? 15 : 31));
  const double value = number_of(exponent, bits & 7, has_sign ? 7 : 15, 3);
  return general(has_sign && bits >> 7 ? -value : value);
}

std::string decode(std::uint64_t bits, const std::string& dtype, const std::string& holds) {
  if (dtype == "I64") return std::to_string(bits);
  if (dtype == "U8" && holds == "e5m2") return decode(bits << 8, "F16", holds);
  if (dtype == "U8") return scale(bits, holds);
  if (is_nan(bits, dtype)) return "nan";
  if (dtype == "F16") {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double value = exponent == 31 ? HUGE_VAL : number_of(exponent, bits & 0x3ff, 15, 10);
    return general(bits >> 15 ? -value : value);
  }
  const std::uint32_t word = static_cast<std::uint32_t>(dtype == "BF16" ? bits << 16 : bits);
  float value;
  std::memcpy(&value, &word, sizeof value);
  return general(value);
}

std::string code(unsigned bits) {
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return general(bits & 8 ? -values[bits & 7] : values[bits & 7]);
}

std::string hexadecimal(std::uint64_t bits, std::size_t size) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llx", static_cast<int>(2 * size), static_cast<unsigned long long>(bits));
  return text;
}

std::string coordinate(std::uint64_t at, const Shape& shape) {
  std::string found;
  for (std::size_t i = shape.size(); i-- > 0;) {
    found = std::to_string(at % shape[i]) + (found.empty() ? "" : ", ") + found;
    at /= shape[i];
  }
  return "[" + found + "]";
}

// The set

struct Field {
  std::string name, holds, dtype;
  Shape shape;
  std::uint64_t size = 0, slack = 0;
  Bytes low, high, skip;
  std::vector<Bytes> either;
  bool zero = false, nan = false;
  std::vector<Shape> tensors;

  Field(
      const std::string& of, const Json& about, const std::map<std::string, Tensor>& file,
      const std::vector<std::string>& conventions)
      : name(of), holds(about.word("holds")), dtype(about.word("dtype")), size(itemsize(dtype)) {
    if (!size || dtype == "F8_E4M3" || !extents(about.find("shape"), shape))
      throw Refused("the index has no dtype and shape of " + name);
    const bool bounded = file.count("lowest." + name) != 0;
    low = array(file, (bounded ? "lowest." : "expected.") + name);
    high = array(file, (bounded ? "highest." : "expected.") + name);
    if (const Json* found = about.find("slack")) {
      if (found->kind != Json::integer || found->number > kMostBytes)
        throw Refused("the index has no slack of " + name);
      slack = found->number * size;
    }
    if (const Json* found = about.find("tensors"))
      for (const Json& each : found->items) {
        tensors.emplace_back();
        if (!extents(each.find("shape"), tensors.back())) throw Refused("the index has no tensors of " + name);
      }
    skip.assign(low.size(), '\0');
    const Json* const all = about.find("conventions");
    for (const std::string& convention : conventions)
      if (const Json* found = all ? all->find(convention) : nullptr) allow(*found, file);
  }

  std::size_t compared() const {
    return static_cast<std::size_t>(std::count_if(skip.begin(), skip.end(), [](char bits) { return bits != '\xff'; }));
  }

  bool right(std::size_t at, const Bytes& answer) const {
    if (low.compare(at * size, size, answer, at * size, size) == 0) return true;
    if (size > 1) return number(at, answer);
    if (holds == "e2m1x2") return half(at, answer, 0) && half(at, answer, 4);
    return any(at, answer, 0, 0xff, 0x7f);
  }

  std::string describe(std::size_t at, const Bytes& answer) const {
    std::string where = name + " " + coordinate(at, shape);
    std::uint64_t left = at;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::uint64_t entries = product(tensors[i], 1);
      if (left < entries) {
        where += ", tensor " + std::to_string(i) + " " + coordinate(left, tensors[i]);
        break;
      }
      left -= entries;
    }
    const std::uint64_t given = bits(answer, at), lowest = bits(low, at), highest = bits(high, at);
    if (holds == "e2m1x2") {
      const int shift = half(at, answer, 0) ? 4 : 0;
      const unsigned one = given >> shift & 15, other = lowest >> shift & 15;
      return where + ": byte " + hexadecimal(given, 1) + ", must be " + hexadecimal(lowest, 1) + "; its " +
             (shift ? "high" : "low") + " code is " + std::to_string(one) + " (" + code(one) + "), must be " +
             std::to_string(other) + " (" + code(other) + ")";
    }
    where += ": " + number_text(given) + ", must be ";
    return where +
           (lowest == highest ? number_text(lowest) : "from " + number_text(lowest) + " to " + number_text(highest));
  }

 private:
  Bytes array(const std::map<std::string, Tensor>& file, const std::string& key) const {
    const auto found = file.find(key);
    if (found == file.end() || found->second.dtype != dtype || found->second.shape != shape)
      throw Refused("the set has no " + shown(key) + " of the dtype and shape that its index says");
    return found->second.bytes;
  }

  void allow(const Json& about, const std::map<std::string, Tensor>& file) {
    const std::string kind = about.word("kind");
    if (kind == "zero") {
      zero = true;
    } else if (kind == "nan") {
      nan = true;
    } else if ((kind == "either" || kind == "skip") && size == 1) {
      const Bytes found = array(file, about.word("array"));
      if (kind == "either") {
        either.push_back(found);
      } else {
        for (std::size_t i = 0; i < skip.size(); ++i) skip[i] = static_cast<char>(skip[i] | found[i]);
      }
    } else {
      throw Refused("the index has a convention of " + name + " of a kind that this does not know");
    }
  }

  std::uint64_t bits(const Bytes& from, std::size_t at) const { return little_endian(from, at * size, size); }
  std::string number_text(std::uint64_t value) const {
    return hexadecimal(value, size) + " (" + decode(value, dtype, holds) + ")";
  }
  bool half(std::size_t at, const Bytes& answer, int shift) const { return any(at, answer, shift, 15, 7); }

  // Whether a byte, or half of it, is one of those that are allowed. magnitude: its bits without the sign
  bool any(std::size_t at, const Bytes& answer, int shift, unsigned mask, unsigned magnitude) const {
    const unsigned given = bits(answer, at) >> shift & mask, free = bits(skip, at) >> shift & mask;
    const auto same = [&](const Bytes& from) {
      const unsigned wanted = bits(from, at) >> shift & mask;
      return ((given ^ wanted) & ~free) == 0 || (zero && ((given | wanted) & magnitude) == 0) ||
             (nan && mask == 0xff && is_nan_byte(given, holds) && is_nan_byte(wanted, holds));
    };
    return same(low) || std::any_of(either.begin(), either.end(), same);
  }

  bool number(std::size_t at, const Bytes& answer) const {
    const std::uint64_t given = bits(answer, at), sign = 1ull << (8 * size - 1);
    std::vector<std::uint64_t> allowed{given};
    if (zero && (given & ~sign) == 0) allowed.push_back(given ^ sign);
    if (nan && is_nan(given, dtype)) allowed.push_back(sign - 1);
    const std::int64_t least = order(bits(low, at), sign), most = order(bits(high, at), sign);
    return std::any_of(allowed.begin(), allowed.end(), [&](std::uint64_t each) {
      return least <= order(each, sign) && order(each, sign) <= most;
    });
  }
};

struct Words {
  std::string folder, vector;
  std::vector<std::string> answers, conventions, only;
};

Words words(int count, char** given) {
  Words found;
  std::vector<std::string> rest;
  const char* const usage = "; usage: check SET VECTOR ANSWER... [--convention NAME]... [--only FIELD]...";
  for (int i = 1; i < count; ++i) {
    const std::string word = given[i];
    if (word == "--convention" || word == "--only") {
      if (i + 1 == count) throw Refused(word + " names nothing" + usage);
      (word == "--only" ? found.only : found.conventions).push_back(given[++i]);
    } else if (word.compare(0, 2, "--") == 0) {
      throw Refused("there is no option " + shown(word) + usage);
    } else {
      rest.push_back(word);
    }
  }
  if (rest.size() < 3) throw Refused(std::string("a set, a vector and an answer are needed") + usage);
  found.folder = rest[0];
  found.vector = rest[1];
  found.answers.assign(rest.begin() + 2, rest.end());
  return found;
}

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::string joined(const std::vector<std::string>& all) {
  std::string found;
  for (const std::string& each : all) found += (found.empty() ? "" : ", ") + each;
  return found;
}

struct Answer {
  std::string path;
  Tensor tensor;
};

std::map<std::string, Answer> answers(const std::vector<std::string>& given, const Json& fields) {
  std::map<std::string, Answer> found;
  const auto take = [&](const std::string& name, const std::string& path, Tensor tensor) {
    if (!fields.find(name)) throw Refused(path + " has a tensor " + shown(name) + ", which is no field of this vector");
    if (!found.emplace(name, Answer{path, std::move(tensor)}).second) throw Refused(name + " is given twice");
  };
  for (const std::string& word : given) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos && fields.find(word.substr(0, equals))) {
      const std::string path = word.substr(equals + 1);
      const bool array = path.size() > 4 && path.compare(path.size() - 4, 4, ".npy") == 0;
      take(word.substr(0, equals), path, array ? npy(path) : Tensor{"", {}, read(path)});
    } else {
      for (auto& [name, tensor] : safetensors(word, read(word))) take(name, word, std::move(tensor));
    }
  }
  return found;
}

bool fits(const Field& field, const std::string& dtype) {
  static const std::map<std::string, std::vector<std::string>> numpy = {
      {"U8", {"|u1"}}, {"F16", {"<f2"}}, {"BF16", {"<u2", "<V2", "|V2"}}, {"F32", {"<f4"}}, {"I64", {"<i8"}}};
  return dtype.empty() || dtype == field.dtype || (field.holds == "e4m3" && dtype == "F8_E4M3") ||
         has(numpy.at(field.dtype), dtype);
}

// Bytes of the slack that follow the field in an answer.
std::size_t require(const Field& field, const Answer& answer) {
  const Tensor& given = answer.tensor;
  const std::string head = answer.path + ": " + field.name;
  if (!fits(field, given.dtype)) throw Refused(head + " is " + shown(given.dtype) + "; it must be " + field.dtype);
  const std::size_t total = field.low.size();
  const Shape flat{(total + field.slack) / field.size};
  if (!given.dtype.empty() && given.shape != field.shape && (!field.slack || given.shape != flat))
    throw Refused(
        head + " has another shape; it must have " + std::to_string(field.shape.size()) +
        " extents, as the index says");
  if (given.bytes.size() != total && (!field.slack || given.bytes.size() != total + field.slack))
    throw Refused(
        head + " has " + std::to_string(given.bytes.size()) + " bytes; it must have " + std::to_string(total));
  return given.bytes.size() - total;
}

int compare(const std::string& name, const std::vector<Field>& fields, const std::map<std::string, Answer>& given) {
  std::size_t compared = 0, changed = 0, slack = 0;
  std::vector<std::string> names;
  for (const Field& field : fields) {
    slack += require(field, given.at(field.name));
    compared += field.compared();
    names.push_back(field.name);
  }
  if (!compared)
    throw Refused(name + ": nothing is compared, because the fields have no bytes, or conventions skip all");
  bool different = false;
  for (const Field& field : fields) {
    const Bytes& answer = given.at(field.name).tensor.bytes;
    std::size_t wrong = 0, first = 0;
    for (std::size_t at = 0; at < field.low.size() / field.size; ++at)
      if (!field.right(at, answer) && !wrong++) first = at;
    if (wrong) std::printf("different: %s; %zu entries differ\n", field.describe(first, answer).c_str(), wrong);
    different = different || wrong;
    for (std::size_t i = 0; i < field.low.size(); ++i) changed += field.low[i] != answer[i] && field.skip[i] != '\xff';
  }
  if (different) return kDifferent;
  std::printf("equal: %s, %zu bytes compared in %s\n", name.c_str(), compared, joined(names).c_str());
  if (changed)
    std::printf(
        "accepted: %zu of these bytes are not the expected ones, within bounds or by the conventions named\n", changed);
  if (slack) std::printf("not compared: %zu bytes of slack\n", slack);
  return kEqual;
}

void require_known(const char* kind, const std::vector<std::string>& chosen, const Json& known) {
  for (const std::string& each : chosen)
    if (!known.find(each)) throw Refused(std::string("there is no ") + kind + " " + shown(each));
}

bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char each) {
    return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
           each == '_' || each == '-';
  });
}

void require_name(const std::string& path, const std::string& text) {
  if (!is_name(text)) throw Refused(path + " has the name " + shown(text) + "; names are letters, digits, _ and -");
}

int check(const Words& given) {
  const std::string path = given.folder + "/index.json";
  const Json index = parse(read(path), path);
  const Json *const vectors = index.find("vectors"), *const conventions = index.find("conventions");
  if (index.word("format") != kFormat || !vectors || vectors->kind != Json::object || !conventions)
    throw Refused(path + " is no index of " + kFormat);
  const auto found = std::find_if(vectors->members.begin(), vectors->members.end(), [&](const auto& each) {
    return each.first == given.vector || each.second.word("id") == given.vector;
  });
  if (found == vectors->members.end()) throw Refused(path + " has no vector " + shown(given.vector));
  const auto& [name, about] = *found;
  const std::string file = about.word("file");
  const std::string end = ".safetensors";
  if (file.size() <= end.size() || file.compare(file.size() - end.size(), end.size(), end) != 0 ||
      !is_name(file.substr(0, file.size() - end.size())))
    throw Refused(path + " names no file of the vector");
  const Bytes content = read(given.folder + "/" + file);
  if (sha256(content) != about.word("digest"))
    throw Refused(file + " is not the file of which " + path + " has the digest; write the set anew");
  const Json* const all = about.find("fields");
  if (!all || all->kind != Json::object) throw Refused(path + " has no fields of the vector");
  require_name(path, name);
  for (const auto& each : all->members) require_name(path, each.first);
  const auto tensors = safetensors(file, content);
  require_known("convention", given.conventions, *conventions);
  require_known("field", given.only, *all);
  const auto written = answers(given.answers, *all);
  std::vector<std::string> missing, unused;
  std::vector<Field> fields;
  for (const auto& [field, said] : all->members) {
    const bool wanted = given.only.empty() || has(given.only, field);
    if (wanted && !written.count(field)) missing.push_back(field);
    if (!wanted && written.count(field)) unused.push_back(field);
    if (wanted) fields.emplace_back(field, said, tensors, given.conventions);
  }
  if (!missing.empty())
    throw Refused(joined(missing) + " of " + name + " is not given; give it, or name what is to be compared by --only");
  if (!unused.empty()) throw Refused(joined(unused) + " is given, and --only leaves it out");
  return compare(name, fields, written);
}

}  // namespace

int main(int count, char** given) {
  try {
    const int code = check(words(count, given));
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "error: the output cannot be written\n");
  } catch (const Refused& refused) {
    std::fprintf(stderr, "error: %s\n", refused.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: the set is damaged: %s\n", error.what());
  }
  return kRefused;
}
