#ifndef EXAMPLES_OPTIONS_H_
#define EXAMPLES_OPTIONS_H_
/* Command line of the examples: a table of `--name VALUE` rows, which also gives the text of
 * --help.
 */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *name; /* without the dashes */
  enum {
    kInt,
    kReal,
    kWord,
    kText
  } kind;            /* type of `*value`: int, double, int (index of the word), char* */
  void *value;       /* holds the default until the option is read */
  double low, high;  /* kInt, kReal: accepted range */
  const char *words; /* kWord: the choices, separated by '|' */
  const char *help;
} option;

/* Index of `word` in "a|b|c", or -1. */
static inline int option_word(const char *words, const char *word) {
  const size_t length = strlen(word);
  for (int index = 0; *words; ++index) {
    const size_t next = strcspn(words, "|");
    if (next == length && strncmp(words, word, length) == 0) return index;
    words += next + (words[next] == '|');
  }
  return -1;
}

static inline void option_print(const option *row) {
  char value[64] = "";
  if (row->kind == kInt) snprintf(value, sizeof value, " [%d]", *(int *)row->value);
  if (row->kind == kReal) snprintf(value, sizeof value, " [%g]", *(double *)row->value);
  if (row->kind == kWord) snprintf(value, sizeof value, " %s", row->words);
  printf("  --%-12s %s%s\n", row->name, row->help, value);
}

/* Stores one value. Returns NULL, or a text that lists the accepted values. */
static inline const char *option_store(const option *row, const char *text) {
  static char accepted[128];
  char *end = NULL;
  if (row->kind == kText) {
    *(const char **)row->value = text;
    return NULL;
  }
  if (row->kind == kWord) {
    const int index = option_word(row->words, text);
    if (index < 0) return row->words;
    *(int *)row->value = index;
    return NULL;
  }
  const double number = row->kind == kInt ? (double)strtol(text, &end, 10) : strtod(text, &end);
  if (end == text || *end != '\0' || !(number >= row->low && number <= row->high)) {
    snprintf(accepted, sizeof accepted, "%s %.0f to %.0f",
             row->kind == kInt ? "an integer" : "a number", row->low, row->high);
    return accepted;
  }
  if (row->kind == kInt) {
    *(int *)row->value = (int)number;
  } else {
    *(double *)row->value = number;
  }
  return NULL;
}

/* Ends the program on all ranks; rank 0 prints the reason. Collective: every rank must call it. */
static inline void options_refuse(const char *reason, const char *got, const char *accepted) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    fprintf(stderr, "%s %s: wanted %s (--help lists all options)\n", reason, got, accepted);
  MPI_Finalize();
  exit(2);
}

/* Reads argv after MPI_Init; rank 0 answers --help and bad input, and the program ends (exit status
 * 0 or 2). */
static inline void options_read(int argc, char **argv, const char *what, const option *table,
                                int rows) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0) {
      if (rank == 0) {
        printf("%s\n\n", what);
        for (int row = 0; row < rows; ++row) option_print(&table[row]);
      }
      MPI_Finalize();
      exit(0);
    }
    const option *row = table;
    while (row < table + rows &&
           (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, row->name) != 0))
      ++row;
    if (row == table + rows) options_refuse("unknown option", argv[i], "one of the table");
    if (i + 1 == argc) options_refuse("no value for", argv[i], "a value after it");
    const char *accepted = option_store(row, argv[++i]);
    if (accepted) options_refuse(argv[i - 1], argv[i], accepted);
  }
}

/* MPI_Init_thread for calls of all threads, and options_read. */
static inline void options_start(int *argc, char ***argv, const char *what, const option *table,
                                 int rows) {
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  options_read(*argc, *argv, what, table, rows);
  if (provided < MPI_THREAD_MULTIPLE)
    options_refuse("this MPI's thread level", "", "MPI_THREAD_MULTIPLE");
}

/* Rows that several examples have. */
#define OPTION_THREADS(value) \
  { "threads", kInt, value, 1, 1024, NULL, "threads per rank" }
#define OPTION_LATE_RANK(value) \
  { "late-rank", kInt, value, 0, 1 << 20, NULL, "the rank with the late thread" }
#define OPTION_SEED(value)                                                     \
  {                                                                            \
    "seed", kInt, value, 0, 1 << 30, NULL,                                     \
        "not 0: every thread of every rank sleeps, by chance, up to --late-ms" \
  }
#define OPTION_TRACE(value)                                                \
  {                                                                        \
    "trace", kText, value, 0, 0, NULL,                                     \
        "rank r writes when partitions became ready and arrived to FILE.r" \
  }

#endif /* EXAMPLES_OPTIONS_H_ */
