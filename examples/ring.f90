! ring: each rank sends a partitioned message to the next one, in Fortran with mpi_f08.
!
! A rank fills and releases its partitions one by one (MPI_Pready). In between it tests whether partitions of its
! predecessor have arrived (MPI_Parrived), and checks each at once. Every round has other data. Exit status 1 if a
! partition held wrong data.
!
!     mpiexec -n 2 ./ring --partitions 8 --late-ms 5
program ring
  use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
  use mpi_f08
  implicit none

  integer :: partitions = 8, doubles = 1024, rounds = 20
  real(real64) :: late_ms = 0
  character(len=4096) :: trace = ''
  integer :: rank, ranks, next, previous, round, wrong
  logical :: more
  integer(MPI_COUNT_KIND) :: elements
  type(MPI_Request) :: requests(2)  ! receive, send
  real(real64), allocatable, asynchronous :: outgoing(:, :), incoming(:, :)
  logical, allocatable :: seen(:), wrong_round(:)
  integer(int64), allocatable :: ready_ns(:, :), arrived_ns(:, :), round_ns(:, :)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call read_options(more)
  if (.not. more) then
    call MPI_Finalize()
    stop
  end if
  next = mod(rank + 1, ranks)
  previous = mod(rank + ranks - 1, ranks)
  allocate (outgoing(doubles, partitions), incoming(doubles, partitions), seen(partitions), wrong_round(rounds))
  allocate (ready_ns(partitions, rounds), arrived_ns(partitions, rounds), round_ns(3, rounds))
  wrong_round = .false.

  elements = doubles
  call MPI_Precv_init(incoming, partitions, elements, MPI_DOUBLE_PRECISION, previous, 0, MPI_COMM_WORLD, &
                      MPI_INFO_NULL, requests(1))
  call MPI_Psend_init(outgoing, partitions, elements, MPI_DOUBLE_PRECISION, next, 0, MPI_COMM_WORLD, &
                      MPI_INFO_NULL, requests(2))
  do round = 1, rounds
    call exchange(round)
  end do
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))

  call MPI_Allreduce(MPI_IN_PLACE, wrong_round, rounds, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD)
  wrong = count(wrong_round)
  if (rank == 0) then
    print '(3a, i0, a, i0, a, i0, a, i0, a)', 'ring (Fortran): ', trim(merge('PASSED', 'FAILED', wrong == 0)), &
      ': ', ranks, ' ranks, ', partitions, ' partitions, wrong data in ', wrong, ' of ', rounds, ' rounds'
  end if
  if (trace /= '') call write_trace()
  call MPI_Finalize()
  if (wrong > 0) stop 1

contains

  ! One round: releases one partition after the other, and tests for arrivals until all have arrived.
  subroutine exchange(round)
    integer, intent(in) :: round
    integer :: partition
    integer(int64) :: go_on_ns

    seen = .false.
    round_ns(1, round) = now_ns()
    call MPI_Startall(2, requests)
    do partition = 1, partitions
      go_on_ns = now_ns()
      if (rank == 0 .and. partition == partitions) go_on_ns = go_on_ns + int(late_ms*1e6_real64, int64)
      do
        call look(round)
        if (now_ns() >= go_on_ns) exit
      end do
      outgoing(:, partition) = expected(rank, round, partition)
      call MPI_F_sync_reg(outgoing)
      ready_ns(partition, round) = now_ns()
      call MPI_Pready(partition - 1, requests(2))
    end do
    do while (.not. all(seen))
      call look(round)
    end do
    round_ns(2, round) = now_ns()
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    round_ns(3, round) = now_ns()
  end subroutine

  ! Checks the partitions that have arrived since the last test.
  subroutine look(round)
    integer, intent(in) :: round
    integer :: partition
    logical :: arrived

    do partition = 1, partitions
      if (seen(partition)) cycle
      call MPI_Parrived(requests(1), partition - 1, arrived)
      if (.not. arrived) cycle
      arrived_ns(partition, round) = now_ns()
      seen(partition) = .true.
      call MPI_F_sync_reg(incoming)
      if (any(incoming(:, partition) /= expected(previous, round, partition))) wrong_round(round) = .true.
    end do
  end subroutine

  ! The data that a rank sends: exact in floating point, different for each round, partition and element.
  pure function expected(sender, round, partition) result(values)
    integer, intent(in) :: sender, round, partition
    real(real64) :: values(doubles)
    integer :: i
    values = [(real(sender, real64) + 1e3_real64*round + 1e7_real64*partition + 1e11_real64*i, i=1, doubles)]
  end function

  ! Nanoseconds of the clock that all processes of this host share (gfortran: CLOCK_MONOTONIC).
  function now_ns() result(ns)
    integer(int64) :: ns, ticks, rate
    call system_clock(ticks, rate)
    ns = ticks*(1000000000_int64/rate)
  end function

  ! Reads the command line. more is false if there is nothing to run: the user wants help, or the input is bad.
  subroutine read_options(more)
    logical, intent(out) :: more
    character(len=4096) :: name, value
    integer :: i, status

    more = .true.
    do i = 1, command_argument_count(), 2
      call get_command_argument(i, name)
      call get_command_argument(i + 1, value)
      status = 0
      select case (name)
      case ('--partitions'); read (value, *, iostat=status) partitions
      case ('--doubles'); read (value, *, iostat=status) doubles
      case ('--rounds'); read (value, *, iostat=status) rounds
      case ('--late-ms'); read (value, *, iostat=status) late_ms
      case ('--trace'); trace = value
      case default; status = 1
      end select
      if (name == '--help') then
        more = .false.
        if (rank == 0) print '(a)', &
          'ring (Fortran): partitioned messages around a ring', '', &
          '  --partitions  partitions of a message [8]', &
          '  --doubles     doubles per partition [1024]', &
          '  --rounds      messages, one after the other [20]', &
          '  --late-ms     rank 0 releases its last partition so much later [0]', &
          '  --trace       rank r writes when partitions became ready and arrived to FILE.r'
        return
      end if
      if (status /= 0 .or. partitions < 1 .or. doubles < 1 .or. rounds < 1 .or. late_ms < 0) then
        if (rank == 0) write (error_unit, '(5a)') trim(name), ' ', trim(value), ': not understood (--help lists ', &
          'all options)'
        call MPI_Finalize()
        stop 2
      end if
    end do
  end subroutine

  ! One JSON object per event, as the C examples write them.
  subroutine write_trace()
    character(len=4100) :: path
    integer :: unit, round, partition, i
    character(len=5), parameter :: names(3) = ['start', 'wait ', 'done ']

    write (path, '(2a, i0)') trim(trace), '.', rank
    open (newunit=unit, file=path, action='write', status='replace')
    write (unit, '(a, i0, a)') '{"program": "ring_fortran", "rank": ', rank, ', "clock": "CLOCK_MONOTONIC"}'
    do round = 1, rounds
      do i = 1, 3
        call event(unit, 'receive', previous, round, trim(names(i)), -1, round_ns(i, round))
        call event(unit, 'send', next, round, trim(names(i)), -1, round_ns(i, round))
      end do
      do partition = 1, partitions
        call event(unit, 'send', next, round, 'ready', partition - 1, ready_ns(partition, round))
        call event(unit, 'receive', previous, round, 'arrived', partition - 1, arrived_ns(partition, round))
      end do
    end do
    close (unit)
  end subroutine

  subroutine event(unit, side, peer, round, name, partition, t_ns)
    integer, intent(in) :: unit, peer, round, partition  ! partition: -1 for an event of the whole round
    character(len=*), intent(in) :: side, name
    integer(int64), intent(in) :: t_ns
    character(len=32) :: which

    which = ''
    if (partition >= 0) write (which, '(a, i0)') ', "partition": ', partition
    write (unit, '(3a, i0, a, i0, 5a, i0, a)') '{"channel": "ring", "side": "', side, '", "peer": ', peer, &
      ', "round": ', round - 1, ', "event": "', name, '"', trim(which), ', "t_ns": ', t_ns, '}'
  end subroutine
end program
