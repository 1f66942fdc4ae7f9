! Partitioned communication (MPI 4.0, chapter 4) for an MPI with an mpi_f08 module that lacks it, such as Open MPI 4.
! Compile this file with the program's compiler, `use mpi_partitioned_f08` beside `use mpi_f08`, and link with larklane_mpi_ompi
! before the MPI. Programs with `use mpi` or mpif.h need no module: the calls are external procedures.
module mpi_partitioned_f08
  use, intrinsic :: iso_c_binding, only: c_int, c_int64_t
  use mpi_f08, only: MPI_Comm, MPI_Datatype, MPI_Info, MPI_Request, MPI_COUNT_KIND
  implicit none
  private
  public :: MPI_Psend_init, MPI_Precv_init, MPI_Pready, MPI_Pready_range, MPI_Pready_list, MPI_Parrived

  ! The library's entry points, with handles as integers.
  interface
    subroutine psend_init(buf, partitions, count, datatype, dest, tag, comm, info, request, ierror) &
        bind(C, name="mpi_psend_init_")
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buf
      !DIR$ IGNORE_TKR buf
      type(*), dimension(*), intent(in), asynchronous :: buf
      integer(kind=c_int), intent(in) :: partitions, datatype, dest, tag, comm, info
      integer(kind=c_int64_t), intent(in) :: count
      integer(kind=c_int), intent(out) :: request, ierror
    end subroutine psend_init
    subroutine precv_init(buf, partitions, count, datatype, source, tag, comm, info, request, ierror) &
        bind(C, name="mpi_precv_init_")
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buf
      !DIR$ IGNORE_TKR buf
      type(*), dimension(*), asynchronous :: buf
      integer(kind=c_int), intent(in) :: partitions, datatype, source, tag, comm, info
      integer(kind=c_int64_t), intent(in) :: count
      integer(kind=c_int), intent(out) :: request, ierror
    end subroutine precv_init
    subroutine pready(partition, request, ierror) bind(C, name="mpi_pready_")
      import :: c_int
      integer(kind=c_int), intent(in) :: partition, request
      integer(kind=c_int), intent(out) :: ierror
    end subroutine pready
    subroutine pready_range(partition_low, partition_high, request, ierror) bind(C, name="mpi_pready_range_")
      import :: c_int
      integer(kind=c_int), intent(in) :: partition_low, partition_high, request
      integer(kind=c_int), intent(out) :: ierror
    end subroutine pready_range
    subroutine pready_list(length, array_of_partitions, request, ierror) bind(C, name="mpi_pready_list_")
      import :: c_int
      integer(kind=c_int), intent(in) :: length, array_of_partitions(*), request
      integer(kind=c_int), intent(out) :: ierror
    end subroutine pready_list
    subroutine parrived(request, partition, flag, ierror) bind(C, name="mpi_parrived_")
      import :: c_int
      integer(kind=c_int), intent(in) :: request, partition
      integer(kind=c_int), intent(out) :: flag, ierror
    end subroutine parrived
  end interface

contains

  subroutine MPI_Psend_init(buf, partitions, count, datatype, dest, tag, comm, info, request, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
    !DEC$ ATTRIBUTES NO_ARG_CHECK :: buf
    !DIR$ IGNORE_TKR buf
    type(*), dimension(*), intent(in), asynchronous :: buf
    integer, intent(in) :: partitions, dest, tag
    integer(kind=MPI_COUNT_KIND), intent(in) :: count
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Info), intent(in) :: info
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    integer :: code
    call psend_init(buf, partitions, count, datatype%MPI_VAL, dest, tag, comm%MPI_VAL, info%MPI_VAL, request%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPI_Psend_init

  subroutine MPI_Precv_init(buf, partitions, count, datatype, source, tag, comm, info, request, ierror)
    !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
    !DEC$ ATTRIBUTES NO_ARG_CHECK :: buf
    !DIR$ IGNORE_TKR buf
    type(*), dimension(*), asynchronous :: buf
    integer, intent(in) :: partitions, source, tag
    integer(kind=MPI_COUNT_KIND), intent(in) :: count
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Info), intent(in) :: info
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    integer :: code
    call precv_init(buf, partitions, count, datatype%MPI_VAL, source, tag, comm%MPI_VAL, info%MPI_VAL, request%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPI_Precv_init

  subroutine MPI_Pready(partition, request, ierror)
    integer, intent(in) :: partition
    type(MPI_Request), intent(in) :: request
    integer, optional, intent(out) :: ierror
    integer :: code
    call pready(partition, request%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPI_Pready

  subroutine MPI_Pready_range(partition_low, partition_high, request, ierror)
    integer, intent(in) :: partition_low, partition_high
    type(MPI_Request), intent(in) :: request
    integer, optional, intent(out) :: ierror
    integer :: code
    call pready_range(partition_low, partition_high, request%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPI_Pready_range

  subroutine MPI_Pready_list(length, array_of_partitions, request, ierror)
    integer, intent(in) :: length, array_of_partitions(length)
    type(MPI_Request), intent(in) :: request
    integer, optional, intent(out) :: ierror
    integer :: code
    call pready_list(length, array_of_partitions, request%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPI_Pready_list

  subroutine MPI_Parrived(request, partition, flag, ierror)
    type(MPI_Request), intent(in) :: request
    integer, intent(in) :: partition
    logical, intent(out) :: flag
    integer, optional, intent(out) :: ierror
    integer :: found, code
    call parrived(request%MPI_VAL, partition, found, code)
    flag = found /= 0
    if (present(ierror)) ierror = code
  end subroutine MPI_Parrived

end module mpi_partitioned_f08
