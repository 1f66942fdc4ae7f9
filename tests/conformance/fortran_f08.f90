! Rule F1 with the module mpi_f08: two processes, ten rounds, every call.
program fortran_f08
  use mpi_f08
#ifdef PARTITIONED_MODULE
  use PARTITIONED_MODULE
  use PREPARE_MODULE
#endif
  implicit none
  integer, parameter :: partitions = 4, rounds = 10
  integer(kind=MPI_COUNT_KIND), parameter :: elements = 3
  integer, asynchronous :: values(elements * partitions)
  integer :: rank, ranks, provided, round, i, expected, failures
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  logical :: flag

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  failures = 0
  values = 0
  if (rank == 0) then
    call MPI_Psend_init(values, partitions, elements, MPI_INTEGER, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, request)
  else
    call MPI_Precv_init(values, partitions / 2, 2 * elements, MPI_INTEGER, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, request)
  end if
  do round = 1, rounds
    if (rank == 0) values = [(100 * round + i, i = 1, size(values))]
    call MPI_Start(request)
#ifdef PREPARE_MODULE
    call MPIX_Pbuf_prepare(request)
    call MPIX_Pbuf_prepareall(1, [request])
#endif
    if (rank == 0) then
      call MPI_Pready(3, request)
      call MPI_Pready_range(1, 2, request)
      call MPI_Test(request, flag, status)
      if (flag) failures = failures + 1
      call MPI_Pready_list(1, [0], request)
    else
      flag = .false.
      do while (.not. flag)
        call MPI_Parrived(request, 1, flag)
      end do
      if (values(2 * int(elements) + 1) /= 100 * round + 2 * int(elements) + 1) failures = failures + 1
    end if
    call MPI_Wait(request, status)
    do i = 1, size(values)
      expected = 100 * round + i
      if (values(i) /= expected) failures = failures + 1
    end do
    if (rank == 1) then
      if (status%MPI_SOURCE /= 0 .or. status%MPI_TAG /= 5) failures = failures + 1
      values = 0
    end if
  end do
  call MPI_Request_free(request)
  if (request /= MPI_REQUEST_NULL) failures = failures + 1
  call report('F1_mpi_f08')
  call absolute_addresses()
  call MPI_Finalize()

contains

  include 'fortran_report.inc'

  ! MPI_BOTTOM and a type of absolute addresses on both sides, unequal partitions.
  subroutine absolute_addresses()
    integer(kind=MPI_ADDRESS_KIND) :: address, extent
    type(MPI_Datatype) :: part, whole
    failures = 0
    call MPI_Get_address(values, address)
    call MPI_Type_create_hindexed(1, [int(elements)], [address], MPI_INTEGER, part)
    extent = elements * storage_size(values) / 8
    call MPI_Type_create_resized(part, address, extent, whole)
    call MPI_Type_commit(whole)
    if (rank == 0) then
      call MPI_Psend_init(MPI_BOTTOM, partitions, 1_MPI_COUNT_KIND, whole, 1, 7, MPI_COMM_WORLD, MPI_INFO_NULL, request)
    else
      call MPI_Precv_init(MPI_BOTTOM, partitions / 2, 2_MPI_COUNT_KIND, whole, 0, 7, MPI_COMM_WORLD, MPI_INFO_NULL, request)
    end if
    do round = 1, rounds
      values = 0
      if (rank == 0) values = [(100 * round + i, i = 1, size(values))]
      call MPI_Start(request)
      if (rank == 0) call MPI_Pready_range(0, partitions - 1, request)
      call MPI_Wait(request, MPI_STATUS_IGNORE)
      call MPI_F_sync_reg(values)
      do i = 1, size(values)
        if (values(i) /= 100 * round + i) failures = failures + 1
      end do
    end do
    call MPI_Request_free(request)
    call MPI_Type_free(part)
    call MPI_Type_free(whole)
    call report('F1_mpi_f08_bottom')
  end subroutine
end program
