/* Rings that grow: a pair's ring uses S of its M cells until its sender has found it full; then the sender writes a mark, and goes on in all M.
 * Cells are those of one memory: cell of a position = position mod (cells in use). A record has up to R cells, and goes beyond the last
 * cell rather than around.
 *
 *  1. The sender keeps one of S cells free: the mark has room when nothing else has.
 *  2. A poster locks `next` by an exchange, and only if all positions before it are written: no poster uses a position of before the growth
 *     with the mapping of after it.
 *  3. With `next` locked it sets the mapping, then stores the position of the first record of the grown ring, then the limit. That position
 *     leads to cell S + R - 1, and S + R - 1 positions or more are left out before it. So no cell of an unread record is written, and no
 *     room behind the last one of the S cells: freed + M stays below the first of them.
 *  4. The mark's position is of the small ring. Behind it the receiver goes on at the same position as the sender.
 *  5. The positions left out count as written and as freed.
 *  6. A report of freed cells that is applied meanwhile may undo the new limit: a poster without room restores it.
 *  7. A receiver may leave up to S / 2 - 1 cells of a small ring unreported. A record that then finds no room makes the ring grow.
 *
 * A poster of N short records and one of a long record; a receiver that reports by credit words, which posters without room read, and by a
 * record to the sender's lane; the lane's store is no read-modify-write.
 *
 * Checked: no unread cell is written; records arrive once, in the order of their positions, those of one poster in its order; no wait
 * without end; at the end the pair is quiet.
 *
 * @cc -DCOLLAPSE
 * @model grow
 * @soak grow_long -DN=4
 * @mutant 1 rule 1: the sender uses all S cells => unread[(at+i)]
 * @mutant 2 rule 2: the ring grows while a position is taken and not written => deadlock
 * @mutant 3 rule 2: the mapping changes without a lock => deadlock
 * @mutant 4 rule 3: the limit is raised before the mapping is set => deadlock
 * @mutant 5 rule 3: the grown ring begins at cell S => unread[(at+i)]
 * @mutant 6 -DS=2 -DR=2 -DM=8 -DSTART=17 -DN=5 rule 3: fewer positions are left out => unread[(at+i)]
 * @mutant 7 rule 4: the mark's place is of the grown ring => deadlock
 * @mutant 8 rule 4: the receiver goes on behind the mark => deadlock
 * @mutant 9 rule 5: the positions left out are not written => deadlock
 * @mutant 10 rule 6: a limit that was undone is not restored => deadlock
 * @mutant 11 -DN=4 rule 7: a record that finds no room waits for credit => deadlock
 * @unreached lane -end-
 * @unreached poster mark = 0
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef N
#define N 3
#endif
#ifndef S
#define S 4
#define R 3
#define M 16
#endif
#ifndef START
#define START (2 * M - 2)                          /* whose cell is another one once the ring has grown */
#endif
#define RECORDS (N + 1)
#define FRESH (S + R - 1)
#define NONE 255

/* Of the sender. */
byte next = START, completed = START, limit;
byte cells = S, room, restored;                    /* restored: the limit that rule 6 restores; 0: not grown */
bool locked;
/* The ring. */
byte stamp[M + R]; bool unread[M + R]; byte length[M + R], poster_of[M + R], number_of[M + R];
byte word;                                         /* credit; 0: none */
/* Of the receiver. */
byte head = START, told = START, head_cells = S, delivered;
byte next_number[2], reports = 1;                   /* reports: records that the receiver sends */
chan report = [1] of { byte };
bool marked;

inline cell_of(c, position, in) { c = position % in }
/* One step: the network's write. */
inline write(at, position, size, who, number) {
  d_step {
    i = 0;
    do
    :: i < size -> assert(!unread[at + i]); unread[at + i] = true; stamp[at + i] = 0; i++
    :: else -> break
    od;
    stamp[at] = position; length[at] = size; poster_of[at] = who; number_of[at] = number; i = 0
  }
}
#if MUTATE == 10
#define MORE (limit < word + room)
#else
#define MORE (limit < word + room || limit < restored)
#endif

inline read_word() {                               /* read-modify-writes */
  atomic { limit = (limit < word + room -> word + room : limit)
#if MUTATE != 10
  ; limit = (limit < restored -> restored : limit)
#endif
  }
}
inline grow() {                                    /* found without room; `mark`: its position */
#if MUTATE == 2
  mark = next;
#else
  mark = completed;
#endif
  if
#if MUTATE == 3
  :: atomic { mark == next && !locked && cells == S -> skip }
#else
  :: atomic { mark == next && !locked && cells == S -> locked = true }
#endif
#if MUTATE == 5
     to = ((mark + 1 + S + M - 1 - S) / M + 1) * M + S;
#elif MUTATE == 6
     to = (mark + 1) / M * M + FRESH;
     if
     :: to < mark + 1 -> to = to + M
     :: else
     fi;
#else
     /* the first position from mark + 1 + FRESH on that leads to cell FRESH */
     to = (mark + 1 + M - 1) / M * M + FRESH;
#endif
#if MUTATE != 4
     cells = M;
     room = M;
#endif
     atomic { next = to; locked = false };
     restored = to + M - FRESH;
     limit = (limit < restored -> restored : limit);
#if MUTATE == 4
     cells = M;
     room = M;
#endif
#if MUTATE == 7
     cell_of(at, mark, M);
#else
     cell_of(at, mark, S);
#endif
     write(at, mark, 1, NONE, 0);
#if MUTATE == 9
     completed = completed + 1
#else
     completed = completed + to - mark
#endif
     ; mark = 0; to = 0; at = 0
  :: else -> mark = 0
  fi
}
inline post(size, number) {
  do
  :: atomic { !locked && next + size <= limit -> first = next };
     if
     :: atomic { next == first && !locked && first + size <= limit -> next = first + size; break }
     :: else
     fi
  :: atomic { !locked && next + size > limit && MORE };
     read_word()
#if MUTATE == 11
  :: atomic { !locked && next + size > limit && !MORE && cells == S && completed == next && size < R };
#elif MUTATE == 2
  :: atomic { !locked && next + size > limit && !MORE && cells == S };
#else
  :: atomic { !locked && next + size > limit && !MORE && cells == S && completed == next };
#endif
     grow()
  od;
  cell_of(at, first, cells);
  write(at, first, size, _pid - 1, number);
  completed = completed + size; first = 0; at = 0
}
proctype poster() {
  byte first, at, i, mark, to, n;
  if
  :: _pid == 1 ->
     for (n : 0 .. N - 1) { post(1, n) }
  :: else -> post(R, 0)
  fi
}
/* The lane of the sender: applies reports in records. */
proctype lane() {
  byte f, was, r;
end:
  do
  :: report ? f;
     r = room;
     was = limit;
     if
     :: was < f + r -> limit = f + r
     :: else
     fi; f = 0; r = 0; was = 0
  od
}
proctype receiver() {
  byte c, i, size;
  do
  :: delivered == RECORDS -> break
  :: delivered < RECORDS && stamp[head % head_cells] == head ->
     d_step {
       c = head % head_cells; size = length[c]; i = 0;
       do
       :: i < size -> assert(unread[c + i]); unread[c + i] = false; i++
       :: else -> break
       od;
       i = 0;
       if
       :: poster_of[c] == NONE ->
          assert(head_cells == S);
          head_cells = M;
#if MUTATE == 8
          head = head + 1
#elif MUTATE == 5
          head = ((head + 1 + S + M - 1 - S) / M + 1) * M + S
#elif MUTATE == 6
          head = ((head + 1) / M * M + FRESH < head + 1 -> (head + 1) / M * M + FRESH + M : (head + 1) / M * M + FRESH)
#else
          head = (head + 1 + M - 1) / M * M + FRESH
#endif
       :: else ->
          assert(number_of[c] == next_number[poster_of[c]]);
          next_number[poster_of[c]]++;
          delivered++;
          head = head + size
       fi;
       c = 0; size = 0
     }
     if
     :: head - told > (head_cells == S -> S / 2 - 1 : M / 2 - 1) -> word = head; told = head
     :: else
     fi
  :: delivered < RECORDS && head > told && reports > 0 && nfull(report) -> atomic { report ! head; told = head; reports-- }
  od;
  completed == next && !locked
}
init {
  atomic {
#if MUTATE == 1
    room = S;
#else
    room = S - 1;
#endif
    limit = next + room;
    run poster(); run poster(); run lane(); run receiver()
  }
}
