! Rule F1 with mpif.h: two processes, ten rounds, every call, an array of requests of two kinds.
program fortran_mpif
  implicit none
  include 'mpif.h'
  external :: MPI_Psend_init, MPI_Precv_init, MPI_Pready, MPI_Pready_range, MPI_Pready_list, MPI_Parrived
  integer, parameter :: partitions = 4, rounds = 10
  integer(kind=MPI_COUNT_KIND), parameter :: elements = 3
  integer, asynchronous :: values(elements * partitions)
  integer :: rank, ranks, provided, round, i, failures, worst, error, plain
  integer :: requests(2), statuses(MPI_STATUS_SIZE, 2)
  logical :: flag

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  failures = 0
  values = 0
  if (rank == 0) then
    call MPI_Psend_init(values, partitions, elements, MPI_INTEGER, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), error)
  else
    call MPI_Precv_init(values, partitions / 2, 2 * elements, MPI_INTEGER, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &
                        requests(1), error)
  end if
  do round = 1, rounds
    call MPI_Start(requests(1), error)
    if (rank == 0) then
      plain = round
      values = [(100 * round + i, i = 1, size(values))]
      call MPI_Isend(plain, 1, MPI_INTEGER, 1, 6, MPI_COMM_WORLD, requests(2), error)
      call MPI_Pready(3, requests(1), error)
      call MPI_Pready_range(1, 2, requests(1), error)
      call MPI_Test(requests(1), flag, statuses(1, 1), error)
      if (flag) failures = failures + 1
      call MPI_Pready_list(1, [0], requests(1), error)
    else
      call MPI_Irecv(plain, 1, MPI_INTEGER, 0, 6, MPI_COMM_WORLD, requests(2), error)
      flag = .false.
      do while (.not. flag)
        call MPI_Parrived(requests(1), 1, flag, error)
      end do
    end if
    call MPI_Waitall(2, requests, statuses, error)
    do i = 1, size(values)
      if (values(i) /= 100 * round + i) failures = failures + 1
    end do
    if (plain /= round .or. requests(2) /= MPI_REQUEST_NULL) failures = failures + 1
    if (rank == 1) then
      if (statuses(MPI_SOURCE, 1) /= 0 .or. statuses(MPI_TAG, 1) /= 5) failures = failures + 1
      values = 0
    end if
  end do
  call MPI_Request_free(requests(1), error)
  if (requests(1) /= MPI_REQUEST_NULL) failures = failures + 1
  call MPI_Reduce(failures, worst, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) then
    if (worst == 0) then
      print '(a)', 'ok F1_mpif_h'
    else
      print '(a,i0,a)', 'not ok F1_mpif_h: rank 0: wrong data: ', worst, ' failures'
    end if
  end if
  call MPI_Finalize(error)
end program
