#include "cli/output/table.h"

#include <algorithm>
#include <cstdio>

namespace poseidon {
namespace {

std::string Line(const std::vector<std::string>& cells, const std::vector<Table::Column>& columns,
                 const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - cells[i].size(), ' ');
    const bool left = columns[i].align == Table::Align::kLeft;
    line += (i == 0 ? "" : "  ") + (left ? cells[i] + padding : padding + cells[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string Table::ToString() const {
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(headings[i].size());
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = Line(headings, columns_, widths);
  for (const auto& row : rows_) text += Line(row, columns_, widths);
  return text;
}

std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  const size_t digits_begin = number < 0 ? 1 : 0;
  for (size_t i = text.size(); i > digits_begin + 3;) text.insert(i -= 3, ",");
  return text;
}

std::string Digits(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace poseidon
