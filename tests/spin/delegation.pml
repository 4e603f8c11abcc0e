/* The delegation protocol (docs/delegation.md) for the model checker spin: three sessions, a directory D and a file X in
 * it that D covers. README.md beside this says what is checked and how; docs/testing.md what is left out.
 *
 * Each client is an App (wants, uses, changes) and one Recaller for each inode; each session has its server side (Srv),
 * and Env cuts, loses and repeats. A step is what happens under one lock. Messages wait in slots until somebody takes
 * them, so any may overtake any other: answers of Acquire in `rep`, recalls in `rcl`, answers to recalls in `ans`, a
 * repeated old one in `dup`, commits in `cm`.
 */
#ifndef LOSSES
#define LOSSES 1 /* calls that fail, answers that come twice */
#endif
#ifndef CUTS
#define CUTS 1 /* sessions that fall silent */
#endif

#ifndef WANTS
#define WANTS 4 /* requests of all sessions together; not counted with LIVE */
#endif

#define N 3
#define D 0
#define X 1
#define NONE 0
#define READ 1
#define WRITE 2
#define AT(s, n) ((s) * 2 + (n))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define CONFLICT(a, b) ((a) != NONE && (b) != NONE && ((a) == WRITE || (b) == WRITE))

/* --- the server: records, recalls, requests */
byte rec[6];                                         /* right recorded for itself */
bit exc[N];                                          /* X is excepted from the right on D */
byte gnum[6];                                        /* number of that grant */
byte num[N];                                         /* GRT-1: of grants and messages */
bit rcl[6]; byte rnum[6]; byte stay[6]; byte ends[6]; /* a recall that is not answered */
bit pend[N]; byte wantn[N]; byte wantm[N];           /* a request that waits */
bit before[9];                                       /* [a * 3 + b]: a's request came before b's */
bit ended[N];

/* --- on the way */
bit rep[N]; byte repn[N]; byte repm[N]; byte repnum[N]; bit repexc[N]; byte repstale[N];
bit ans[6]; byte anum[6]; byte akeep[6];
bit dup[6]; byte dnum[6]; byte dkeep[6];
byte cm[N];                                          /* inodes (bits) of a commit that is not applied */
bit unacked[N];                                      /* a commit whose answer has not come */

/* --- the clients */
byte bel[6];                                         /* right of its own, as the client believes */
bit bexc[N];
byte got[6];                                         /* number of the grant held */
byte hnd[6];                                         /* number of the last recall carried out */
bit wait[N];                                         /* an Acquire is on its way */
bit asked[6];                                        /* and it was when the recall that is being answered came */
bit closing[6];                                      /* recall step 4: acknowledges no more changes */
byte dirt[N];                                        /* acknowledged, in no commit */
bit cut[N];                                          /* nothing leaves or reaches it */
bit dead[N];                                         /* crashed, or stopped when its lease ended (LSE-1) */

/* --- what an observer knows: whose cached content is not the newest acknowledged one */
bit stale[6];

hidden byte v;
byte wants = WANTS;
byte losses = LOSSES;
byte cuts = CUTS;

#define COVER(s) (exc[s] -> NONE : rec[AT(s, D)])
#define RECORDED(s, n) ((n) == D -> rec[AT(s, D)] : MAX(rec[AT(s, X)], COVER(s)))
#define BCOVER(s) (bexc[s] -> NONE : bel[AT(s, D)])
#define BELIEVED(s, n) ((n) == D -> bel[AT(s, D)] : MAX(bel[AT(s, X)], BCOVER(s)))
#define BIT(n) (1 << (n))
#define UNCOMMITTED(s) (ended[s] -> 0 : dirt[s] | cm[s])
#define HEARD(s) (!cut[s] && !dead[s])
#define O1(s) (((s) + 1) % N)
#define O2(s) (((s) + 2) % N)

/* INV, DLG-1, COH-1 of one pair */
inline check_pair(a, b) {
  assert(!CONFLICT(BELIEVED(a, D), BELIEVED(b, D)));
  assert(!CONFLICT(BELIEVED(a, X), BELIEVED(b, X)));
}

inline check_one(s) {
  assert(ended[s] || (BELIEVED(s, D) <= RECORDED(s, D) && BELIEVED(s, X) <= RECORDED(s, X)));
  assert(BELIEVED(s, D) == NONE || !stale[AT(s, D)]);
  assert(BELIEVED(s, X) == NONE || !stale[AT(s, X)]);
}

inline check() {
  check_one(0); check_one(1); check_one(2);
  check_pair(0, 1); check_pair(1, 2); check_pair(2, 0)
}

#define USED(s, v) \
  (gnum[AT(s, D)] == v || gnum[AT(s, X)] == v || rnum[AT(s, D)] == v || rnum[AT(s, X)] == v || ends[AT(s, D)] == v || \
   ends[AT(s, X)] == v || anum[AT(s, D)] == v || anum[AT(s, X)] == v || dnum[AT(s, D)] == v || dnum[AT(s, X)] == v || \
   got[AT(s, D)] == v || got[AT(s, X)] == v || hnd[AT(s, D)] == v || hnd[AT(s, X)] == v || repnum[s] == v)
#define LESS(x, v) x = (x > v -> x - 1 : x)

/* Only the order of a session's numbers matters: those that nothing has any more are left out, so that there are finitely
 * many states. */
inline renumber(s) {
  gnum[AT(s, D)] = (rec[AT(s, D)] == NONE -> 0 : gnum[AT(s, D)]);
  gnum[AT(s, X)] = (rec[AT(s, X)] == NONE -> 0 : gnum[AT(s, X)]);
  got[AT(s, D)] = (bel[AT(s, D)] == NONE -> 0 : got[AT(s, D)]);
  got[AT(s, X)] = (bel[AT(s, X)] == NONE -> 0 : got[AT(s, X)]);
  hnd[AT(s, D)] = (rep[s] || pend[s] || rcl[AT(s, D)] -> hnd[AT(s, D)] : 0);
  hnd[AT(s, X)] = (rep[s] || pend[s] || rcl[AT(s, X)] -> hnd[AT(s, X)] : 0);
  v = num[s];
  do
  :: v == 0 -> break
  :: else ->
    if
    :: USED(s, v)
    :: else ->
      LESS(gnum[AT(s, D)], v); LESS(gnum[AT(s, X)], v); LESS(rnum[AT(s, D)], v); LESS(rnum[AT(s, X)], v);
      LESS(ends[AT(s, D)], v); LESS(ends[AT(s, X)], v); LESS(anum[AT(s, D)], v); LESS(anum[AT(s, X)], v);
      LESS(dnum[AT(s, D)], v); LESS(dnum[AT(s, X)], v); LESS(got[AT(s, D)], v); LESS(got[AT(s, X)], v);
      LESS(hnd[AT(s, D)], v); LESS(hnd[AT(s, X)], v); LESS(repnum[s], v); num[s]--
    fi;
    v--
  od;
  v = 0
}

inline forget(s, n) {
  rnum[AT(s, n)] = 0; stay[AT(s, n)] = 0; ends[AT(s, n)] = 0; rcl[AT(s, n)] = 0
}

/* A change of n at s is acknowledged to its program: nobody else's content is the newest any more. */
inline change(s, n) {
  dirt[s] = dirt[s] | BIT(n);
#ifndef LIVE
  stale[AT(s, n)] = 0; stale[AT(O1(s), n)] = 1; stale[AT(O2(s), n)] = 1;
  repstale[O1(s)] = (rep[O1(s)] -> repstale[O1(s)] | BIT(n) : 0);
  repstale[O2(s)] = (rep[O2(s)] -> repstale[O2(s)] | BIT(n) : 0)
#endif
}

/* --- the client */

/* A grant that arrives when a later recall of the inode has been carried out. */
#ifdef NO_NUMBERS
#define VOID(grant, recalled) false
#else
#define VOID(grant, recalled) ((grant) < (recalled))
#endif

inline call_ended(s) { wait[s] = 0; asked[AT(s, D)] = 0; asked[AT(s, X)] = 0 }

inline install(s) {
  byte n0 = repn[s];
  bit knew_d = BELIEVED(s, D) != NONE;
  bit knew_x = BELIEVED(s, X) != NONE;
  if
  :: VOID(repnum[s], hnd[AT(s, n0)])
  :: else ->
    if
    :: n0 == D ->
      /* What falls out of the cover stays as a READ of its own. */
      bel[AT(s, X)] = (repexc[s] -> MAX(bel[AT(s, X)], (BCOVER(s) != NONE -> READ : NONE)) : bel[AT(s, X)]);
      bexc[s] = repexc[s] || VOID(repnum[s], hnd[AT(s, X)])
    :: else
    fi;
    bel[AT(s, n0)] = repm[s];
    got[AT(s, n0)] = repnum[s];
    stale[AT(s, D)] = (knew_d || n0 == X -> stale[AT(s, D)] : repstale[s] & 1);
    stale[AT(s, X)] = (knew_x || BELIEVED(s, X) == NONE -> stale[AT(s, X)] : (repstale[s] >> 1) & 1);
    check();
    /* GRT-1: the op for whose sake it was asked uses it once before it can be given up. */
    if
    :: BELIEVED(s, n0) == WRITE -> change(s, n0)
    :: else
    fi;
    check()
  fi;
  rep[s] = 0; repn[s] = 0; repm[s] = 0; repnum[s] = 0; repexc[s] = 0; repstale[s] = 0;
  call_ended(s)
}

/* With LIVE each session wants one thing, for ever: 1 all the directory, 2 the child and the directory. */
#if LIVE == 1
#define LIVE_WANT_D(s) ((s) == 0 -> WRITE : READ)
#define LIVE_WANT_X(s) NONE
#else
#define LIVE_WANT_D(s) ((s) == 1 -> WRITE : NONE)
#define LIVE_WANT_X(s) ((s) == 0 -> WRITE : ((s) == 2 -> READ : NONE))
#endif

/* Wants something that it has not. */
inline ask(s, n, mode) {
  d_step {
    HEARD(s) && !wait[s] && !pend[s] && !ended[s] && BELIEVED(s, n) < mode && wants > 0 ->
#ifndef LIVE
    wants--;
#endif
    wantn[s] = n; wantm[s] = mode;
    wait[s] = 1; pend[s] = 1;
    before[s * 3 + O1(s)] = 0; before[s * 3 + O2(s)] = 0;
    before[O1(s) * 3 + s] = pend[O1(s)]; before[O2(s) * 3 + s] = pend[O2(s)]
  }
}

proctype App(byte s) {
  do
#ifdef LIVE /* not all that may be, but for ever */
  :: ask(s, D, LIVE_WANT_D(s))
  :: ask(s, X, LIVE_WANT_X(s))
#else
  :: ask(s, D, READ) :: ask(s, D, WRITE) :: ask(s, X, READ) :: ask(s, X, WRITE)
#endif
  :: d_step { wait[s] && rep[s] && HEARD(s) -> install(s); renumber(s) }
#ifdef LIVE
  :: atomic { s != 0 && wait[s] && losses > 0 ->
#else
  :: atomic { wait[s] && losses > 0 ->
#endif
       d_step { /* the call fails; its answer is never looked at, the server may grant all the same */
         losses--;
         call_ended(s);
         rep[s] = 0; repn[s] = 0; repm[s] = 0; repnum[s] = 0; repexc[s] = 0; repstale[s] = 0;
         renumber(s)
       }
     }
#ifndef LIVE
  :: d_step { /* a local change, also while it is cut: its lease has not ended */
       !dead[s] && BELIEVED(s, X) == WRITE && !(dirt[s] & BIT(X)) && !closing[AT(s, X)] &&
         !(closing[AT(s, D)] && bel[AT(s, X)] != WRITE) -> change(s, X); check() }
#endif
  :: dead[s] || ended[s] -> break
  od
}

/* What must be committed before n is given up: itself, and X if the right on D covers it. */
#define TOUCHED(s, n) (BIT(n) | ((n) == D && BCOVER(s) != NONE -> BIT(X) : 0))
#ifdef ANSWER_FIRST
#define COMMITTED(s, n) true
#else
#define COMMITTED(s, n) (!(dirt[s] & TOUCHED(s, n)) && !unacked[s])
#endif
/* The grant that the recall ends has arrived. */
#define ARRIVED(s, n) \
  (got[AT(s, n)] >= ends[AT(s, n)] || ((n) == X && BCOVER(s) != NONE && got[AT(s, D)] >= ends[AT(s, n)]))

/* Answers recalls of one inode. */
proctype Recaller(byte s; byte n) {
  do
  :: atomic { rcl[AT(s, n)] && rnum[AT(s, n)] > hnd[AT(s, n)] && HEARD(s) -> asked[AT(s, n)] = wait[s] };
#ifndef NO_NUMBERS
     /* 1. until the grant that it ends has arrived, or will never: then no call that was begun before is on its way */
     dead[s] || ended[s] || ARRIVED(s, n) || !asked[AT(s, n)];
#endif
     /* 4. acknowledge no more changes, commit */
     atomic { closing[AT(s, n)] = 1; asked[AT(s, n)] = 0 };
     do
     :: dead[s] || ended[s] -> goto out
     :: d_step { !dead[s] && (dirt[s] & TOUCHED(s, n)) && !unacked[s] && HEARD(s) ->
          cm[s] = dirt[s]; dirt[s] = 0; unacked[s] = 1 }
     :: d_step { /* 5, 6. the right is gone; tell the server */
          !dead[s] && !ended[s] && COMMITTED(s, n) ->
          byte keep = (BELIEVED(s, n) < stay[AT(s, n)] -> BELIEVED(s, n) : stay[AT(s, n)]);
          bel[AT(s, n)] = keep;
          bexc[s] = (n == X -> 1 : (keep == NONE -> 0 : bexc[s]));
          hnd[AT(s, n)] = rnum[AT(s, n)];
          got[AT(s, n)] = rnum[AT(s, n)]; /* what stays has the number of the message */
          ans[AT(s, n)] = 1; anum[AT(s, n)] = rnum[AT(s, n)]; akeep[AT(s, n)] = keep;
          closing[AT(s, n)] = 0;
          keep = 0;
          check() };
        break
     od
  :: dead[s] || ended[s] -> break
  od;
out:
  skip
}

/* --- the server's side of one session */

/* What session o has that stands in the way of the request of s. */
#ifdef NO_COVER
#define BLOCKS(o, s) CONFLICT(rec[AT(o, wantn[s])], wantm[s])
#else
#define BLOCKS(o, s) CONFLICT(RECORDED(o, wantn[s]), wantm[s])
#endif
/* An earlier request of another session conflicts with it: a READ does not pass a waiting WRITE. */
#ifdef NO_ORDER
#define FIRST(s) true
#else
#define EARLIER(o, s) (pend[o] && before[(o) * 3 + (s)] && wantn[o] == wantn[s] && CONFLICT(wantm[o], wantm[s]))
#define FIRST(s) (!EARLIER(O1(s), s) && !EARLIER(O2(s), s))
#endif
#define GRANTABLE(s) (!BLOCKS(O1(s), s) && !BLOCKS(O2(s), s) && !rcl[AT(s, wantn[s])])
#ifdef NO_LEASE
#define GONE(o) (cut[o] || dead[o])
#else
#define GONE(o) dead[o]
#endif

/* FEN-1: it is ended in the log; what it acknowledged and did not commit is lost. */
inline end_session(o) {
  ended[o] = 1;
  rec[AT(o, D)] = 0; rec[AT(o, X)] = 0; exc[o] = 0; gnum[AT(o, D)] = 0; gnum[AT(o, X)] = 0;
  forget(o, D); forget(o, X);
  pend[o] = 0; wantn[o] = 0; wantm[o] = 0;
  ans[AT(o, D)] = 0; ans[AT(o, X)] = 0; anum[AT(o, D)] = 0; anum[AT(o, X)] = 0; akeep[AT(o, D)] = 0; akeep[AT(o, X)] = 0;
  dup[AT(o, D)] = 0; dup[AT(o, X)] = 0; dnum[AT(o, D)] = 0; dnum[AT(o, X)] = 0; dkeep[AT(o, D)] = 0; dkeep[AT(o, X)] = 0;
  num[o] = 0; got[AT(o, D)] = 0; got[AT(o, X)] = 0; hnd[AT(o, D)] = 0; hnd[AT(o, X)] = 0;
  before[o * 3 + O1(o)] = 0; before[o * 3 + O2(o)] = 0
}

inline recall(o, s) {
  num[o]++;
  if
  :: wantn[s] == X && !exc[o] && rec[AT(o, D)] != NONE -> /* carve-out: a record of its own, before it is answered */
    gnum[AT(o, X)] = (rec[AT(o, X)] == NONE -> gnum[AT(o, D)] : MAX(gnum[AT(o, X)], gnum[AT(o, D)]));
    rec[AT(o, X)] = RECORDED(o, X);
    exc[o] = 1
  :: else
  fi;
  rcl[AT(o, wantn[s])] = 1; rnum[AT(o, wantn[s])] = num[o];
  ends[AT(o, wantn[s])] = gnum[AT(o, wantn[s])];
  stay[AT(o, wantn[s])] = (wantm[s] == READ -> READ : NONE)
}

/* A want of X by another, or a right on X of another, that keeps a grant on D from covering X. */
#define OTHERS_X(o, right) (CONFLICT(RECORDED(o, X), right) || (pend[o] && wantn[o] == X))

inline grant(s) {
  byte right = MAX(wantm[s], RECORDED(s, wantn[s]));
  bit except = 0;
  num[s]++;
  if
  :: wantn[s] == D ->
#ifndef NO_EXCEPT
    except = OTHERS_X(O1(s), right) || OTHERS_X(O2(s), right) || rcl[AT(s, X)];
#endif
    if
    :: except && COVER(s) != NONE -> /* what falls out stays a READ of its own until the grant arrives */
      rec[AT(s, X)] = MAX(rec[AT(s, X)], READ);
      gnum[AT(s, X)] = num[s]
    :: else
    fi;
    exc[s] = except
  :: else
  fi;
  rec[AT(s, wantn[s])] = right;
  gnum[AT(s, wantn[s])] = num[s];
  if
  :: wait[s] ->
    rep[s] = 1; repn[s] = wantn[s]; repm[s] = right; repnum[s] = num[s]; repexc[s] = except;
#ifndef LIVE
    repstale[s] = UNCOMMITTED(O1(s)) | UNCOMMITTED(O2(s))
#endif
  :: else
  fi;
  pend[s] = 0; wantn[s] = 0; wantm[s] = 0;
  before[s * 3 + O1(s)] = 0; before[s * 3 + O2(s)] = 0;
  right = 0; except = 0
}

/* An answer counts only for the recall that it names, and not before what it names is committed. */
inline take_answer(s, n, number, keep) {
  if
#ifdef ANSWER_ANY
  :: true ->
#else
  :: rcl[AT(s, n)] && rnum[AT(s, n)] == number ->
#endif
    rec[AT(s, n)] = keep;
    gnum[AT(s, n)] = number;
    exc[s] = (n == D && keep == NONE -> 0 : exc[s]);
    forget(s, n)
  :: else
  fi
}

proctype Srv(byte s) {
  do
  :: d_step { /* the request: somebody holds what it wants */
       pend[s] && FIRST(s) && BLOCKS(O1(s), s) && !rcl[AT(O1(s), wantn[s])] && !GONE(O1(s)) -> recall(O1(s), s); renumber(O1(s)) }
  :: d_step {
       pend[s] && FIRST(s) && BLOCKS(O2(s), s) && !rcl[AT(O2(s), wantn[s])] && !GONE(O2(s)) -> recall(O2(s), s); renumber(O2(s)) }
  :: d_step { pend[s] && FIRST(s) && BLOCKS(O1(s), s) && GONE(O1(s)) && !ended[O1(s)] -> end_session(O1(s)); check() }
  :: d_step { pend[s] && FIRST(s) && BLOCKS(O2(s), s) && GONE(O2(s)) && !ended[O2(s)] -> end_session(O2(s)); check() }
  :: d_step { pend[s] && FIRST(s) && GRANTABLE(s) -> grant(s); renumber(s); check() }
  :: d_step { /* nobody waits for it any more: it ends by its deadline, if it is not granted before */
       pend[s] && !wait[s] ->
       pend[s] = 0; wantn[s] = 0; wantm[s] = 0;
       before[s * 3 + O1(s)] = 0; before[s * 3 + O2(s)] = 0; renumber(s) }
  :: d_step { cm[s] && !cut[s] && !ended[s] -> cm[s] = 0 }
  :: d_step { /* a late commit */
       cm[s] && ended[s] ->
#ifdef NO_FENCE
       stale[AT(O1(s), D)] = stale[AT(O1(s), D)] | (cm[s] & 1); stale[AT(O1(s), X)] = stale[AT(O1(s), X)] | (cm[s] >> 1);
       stale[AT(O2(s), D)] = stale[AT(O2(s), D)] | (cm[s] & 1); stale[AT(O2(s), X)] = stale[AT(O2(s), X)] | (cm[s] >> 1);
       check();
#endif
       cm[s] = 0 }
  :: d_step { unacked[s] && !cm[s] && !cut[s] -> unacked[s] = 0 }
  :: d_step { ans[AT(s, D)] && !cut[s] -> take_answer(s, D, anum[AT(s, D)], akeep[AT(s, D)]);
              ans[AT(s, D)] = 0; anum[AT(s, D)] = 0; akeep[AT(s, D)] = 0; renumber(s); check() }
  :: d_step { ans[AT(s, X)] && !cut[s] -> take_answer(s, X, anum[AT(s, X)], akeep[AT(s, X)]);
              ans[AT(s, X)] = 0; anum[AT(s, X)] = 0; akeep[AT(s, X)] = 0; renumber(s); check() }
  :: d_step { dup[AT(s, D)] -> take_answer(s, D, dnum[AT(s, D)], dkeep[AT(s, D)]);
              dup[AT(s, D)] = 0; dnum[AT(s, D)] = 0; dkeep[AT(s, D)] = 0; renumber(s); check() }
  :: d_step { dup[AT(s, X)] -> take_answer(s, X, dnum[AT(s, X)], dkeep[AT(s, X)]);
              dup[AT(s, X)] = 0; dnum[AT(s, X)] = 0; dkeep[AT(s, X)] = 0; renumber(s); check() }
  :: dead[s] && ended[s] && !cm[s] -> break
  od
}

/* --- what goes wrong */
inline go_silent(s) { d_step { cuts > 0 && HEARD(s) && !ended[s] -> cuts--; cut[s] = 1 } }
inline repeat(s, n) {
  d_step { losses > 0 && ans[AT(s, n)] && !dup[AT(s, n)] && !cut[s] ->
    losses--; dup[AT(s, n)] = 1; dnum[AT(s, n)] = anum[AT(s, n)]; dkeep[AT(s, n)] = akeep[AT(s, n)] }
}
/* LSE-1: its lease ends at the client before it does at the server. */
inline stop(s) {
  d_step { cut[s] && !dead[s] ->
    dead[s] = 1; cut[s] = 0; bel[AT(s, D)] = 0; bel[AT(s, X)] = 0; bexc[s] = 0; dirt[s] = 0; unacked[s] = 0;
    call_ended(s); rep[s] = 0; repn[s] = 0; repm[s] = 0; repnum[s] = 0; repexc[s] = 0; repstale[s] = 0;
    closing[AT(s, D)] = 0; closing[AT(s, X)] = 0; check() }
}

proctype Env() {
  do
#ifndef LIVE
  :: go_silent(0)
#endif
  :: go_silent(1)
  :: go_silent(2)
  :: repeat(0, D) :: repeat(0, X) :: repeat(1, D) :: repeat(1, X) :: repeat(2, D) :: repeat(2, X)
  :: stop(0) :: stop(1) :: stop(2)
  od
}

init {
  atomic {
    byte i = 0;
    rec[AT(0, D)] = WRITE; bel[AT(0, D)] = WRITE; /* D was born at the first */
    do
    :: i < N -> run App(i); run Recaller(i, D); run Recaller(i, X); run Srv(i); i++
    :: else -> break
    od;
    run Env()
  }
}

#ifdef LIVE
/* A wanted delegation is at last granted. */
ltl granted { [] (wait[0] -> <> !wait[0]) }
#endif
