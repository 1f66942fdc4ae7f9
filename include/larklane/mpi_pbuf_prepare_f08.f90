! The calls that Larklane adds to each MPI (docs/user/prepare.md), for `use mpi_f08`.
! Compile this file with the program's compiler. Write `use mpi_pbuf_prepare_f08` beside `use mpi_f08`. Link with the larklane_mpi
! library of the MPI's family, before the MPI. Programs with `use mpi` or mpif.h need no module: the calls are external procedures.
module mpi_pbuf_prepare_f08
  use, intrinsic :: iso_c_binding, only: c_int
  use mpi_f08, only: MPI_Request
  implicit none
  private
  public :: MPIX_Pbuf_prepare, MPIX_Pbuf_prepareall

  ! The library's entry points, with handles as integers.
  interface
    subroutine pbuf_prepare(request, ierror) bind(C, name="mpix_pbuf_prepare_")
      import :: c_int
      integer(kind=c_int), intent(in) :: request
      integer(kind=c_int), intent(out) :: ierror
    end subroutine pbuf_prepare
    subroutine pbuf_prepareall(count, array_of_requests, ierror) bind(C, name="mpix_pbuf_prepareall_")
      import :: c_int
      integer(kind=c_int), intent(in) :: count, array_of_requests(*)
      integer(kind=c_int), intent(out) :: ierror
    end subroutine pbuf_prepareall
  end interface

contains

  subroutine MPIX_Pbuf_prepare(request, ierror)
    type(MPI_Request), intent(in) :: request
    integer, optional, intent(out) :: ierror
    integer :: code
    call pbuf_prepare(request%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPIX_Pbuf_prepare

  subroutine MPIX_Pbuf_prepareall(count, array_of_requests, ierror)
    integer, intent(in) :: count
    type(MPI_Request), intent(in) :: array_of_requests(count)
    integer, optional, intent(out) :: ierror
    integer :: code
    call pbuf_prepareall(count, array_of_requests%MPI_VAL, code)
    if (present(ierror)) ierror = code
  end subroutine MPIX_Pbuf_prepareall

end module mpi_pbuf_prepare_f08
