! Rule F1 with mpif.h: two processes, ten rounds, every call, an array of requests of two kinds.
program fortran_mpif
  implicit none
  include 'mpif.h'
  external :: MPI_Psend_init, MPI_Precv_init, MPI_Pready, MPI_Pready_range, MPI_Pready_list, MPI_Parrived
  integer, parameter :: partitions = 4, rounds = 10
  integer(kind=MPI_COUNT_KIND), parameter :: elements = 3
  integer, asynchronous :: values(elements * partitions)
  integer :: rank, ranks, provided, round, i, failures, error, plain
  integer :: requests(2), statuses(MPI_STATUS_SIZE, 2)
  logical :: flag

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  failures = 0
  values = 0
  if (rank == 0) then
    call MPI_Psend_init(values(1), partitions, elements, MPI_INTEGER, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), error)
  else
    call MPI_Precv_init(values(1), partitions / 2, 2 * elements, MPI_INTEGER, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &
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
  call report('F1_mpif_h')
  call absolute_addresses()
  call MPI_Finalize(error)

contains

  include 'fortran_report.inc'

  ! MPI_BOTTOM and a type of absolute addresses on both sides, unequal partitions.
  subroutine absolute_addresses()
    integer(kind=MPI_ADDRESS_KIND) :: address, extent
    integer :: part, whole
    failures = 0
    call MPI_Get_address(values, address, error)
    call MPI_Type_create_hindexed(1, [int(elements)], [address], MPI_INTEGER, part, error)
    extent = elements * storage_size(values) / 8
    call MPI_Type_create_resized(part, address, extent, whole, error)
    call MPI_Type_commit(whole, error)
    if (rank == 0) then
      call MPI_Psend_init(MPI_BOTTOM, partitions, 1_MPI_COUNT_KIND, whole, 1, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &
                          requests(1), error)
    else
      call MPI_Precv_init(MPI_BOTTOM, partitions / 2, 2_MPI_COUNT_KIND, whole, 0, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &
                          requests(1), error)
    end if
    do round = 1, rounds
      values = 0
      if (rank == 0) values = [(100 * round + i, i = 1, size(values))]
      call MPI_Start(requests(1), error)
      if (rank == 0) call MPI_Pready_range(0, partitions - 1, requests(1), error)
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE, error)
      call MPI_Get_address(values, address, error)
      do i = 1, size(values)
        if (values(i) /= 100 * round + i) failures = failures + 1
      end do
    end do
    call MPI_Request_free(requests(1), error)
    call MPI_Type_free(part, error)
    call MPI_Type_free(whole, error)
    call report('F1_mpif_h_bottom')
  end subroutine
end program
