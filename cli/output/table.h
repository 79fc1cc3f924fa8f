// Tables for people to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poseidon {

// Rows of text in columns as wide as they need to be, two spaces apart.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // The headings and the rows, each line ended.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "1,234,567".
std::string Grouped(int64_t number);
// With so many digits behind the point.
std::string Digits(double value, int digits);

}  // namespace poseidon
