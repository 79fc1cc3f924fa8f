// `poseidon convert`: data sets to LMDBs of Datum. See caffe_adapter/convert/convert.h.
#pragma once

#include "core/error.h"

namespace poseidon {

// Read --source, --out, --replace and the other flags of their help. Throw ConfigError for flags
// that are missing, DataError for what is in the files.
ExitCode ConvertCsvVerb();
ExitCode ConvertMnistVerb();
ExitCode ConvertCifar10Verb();
ExitCode ConvertImagesetVerb();
ExitCode ConvertMeanVerb();

}  // namespace poseidon
